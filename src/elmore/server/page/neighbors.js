// The nearest words of a corpus, in context and without it, and a map of all occurrences.

import { post } from "./api.js";
import { el, exampleRow, examplesFor, highlighted, resultArea, svg, wordPicker } from "./dom.js";
import { t } from "./strings.js";

export const id = "neighbors";

/** Words in sentences, by the language of the model. */
export const EXAMPLES = {
  en: [
    { name: "play (theater)", text: "They put on a play last night.", i: 4 },
    { name: "play (sport)", text: "The coach drew up a play with nine seconds left.", i: 5 },
    { name: "bank (river)", text: "They pulled the canoe up on the bank.", i: 7 },
    { name: "bank (money)", text: "She deposited the check at the bank.", i: 6 },
    { name: "spring (season)", text: "The garden is at its best in spring.", i: 7 },
    { name: "light (not heavy)", text: "The tent is light enough to carry.", i: 3 },
  ],
  ko: [
    { name: "말 (동물)", text: "소년은 갈색 말을 타고 들판을 달렸다.", i: 2 },
    { name: "말 (언어)", text: "그는 한참 동안 아무 말을 못했다.", i: 4 },
    { name: "눈 (신체)", text: "아이는 이불 속에서 눈을 감았다.", i: 3 },
    { name: "눈 (날씨)", text: "아침 일찍 골목의 눈을 쓸었다.", i: 3 },
    { name: "사과 (과일)", text: "점심을 먹고 사과를 깎았다.", i: 2 },
    { name: "사과 (사죄)", text: "사장은 직원들에게 사과를 했다.", i: 2 },
  ],
};

export function create({ model, save }) {
  const examples = examplesFor(model(), EXAMPLES);
  const result = resultArea();
  const map = resultArea();
  const picker = wordPicker({ label: t("sentence"), model: () => model().name, onchange: search });

  const use = ({ text, i }) => picker.set(text, Number(i));

  function search({ tokens, position }) {
    save({ text: picker.value.text, i: position });
    if (position === null) {
      result.clear();
      return map.clear();
    }
    const word = { tokens, position };
    const request = { model: model().name, word, k: 8 };
    result.show(async () => {
      const [top, alone] = await Promise.all([
        post("neighbors", request),
        post("neighbors", { ...request, layer: 0 }),
      ]);
      return el(
        "div",
        { class: "columns" },
        el("section", {}, el("h3", {}, t("inContext")), neighborList(top.neighbors)),
        el("section", {}, el("h3", {}, t("alone")), neighborList(alone.neighbors)),
      );
    });
    map.show(async () => drawMap((await post("map", { model: model().name, word })).points));
  }

  if (model().corpus_sentences === null) {
    return { node: el("p", { class: "note" }, t("noCorpus")), show() {} };
  }
  return {
    node: el(
      "div",
      {},
      el("p", { class: "intro" }, t("neighborsIntro", { n: model().corpus_sentences })),
      exampleRow(examples, use),
      picker.node,
      result.node,
      map.node,
    ),
    show: (values) => use(values.text ? values : examples[0]),
  };
}

/** Hits with their similarity and the word highlighted. */
export function neighborList(neighbors) {
  return el(
    "ol",
    { class: "neighbors" },
    neighbors.map((n) =>
      el(
        "li",
        {},
        el("span", { class: "number", title: t("similarity") }, n.similarity.toFixed(3)),
        el("span", {}, ...highlighted(n.tokens, n.position)),
      ),
    ),
  );
}

const SHAPES = [
  (x, y, r) => svg("circle", { cx: x, cy: y, r }),
  (x, y, r) => svg("rect", { x: x - r, y: y - r, width: 2 * r, height: 2 * r }),
  (x, y, r) => svg("path", { d: `M${x} ${y - 1.25 * r}l${1.2 * r} ${2.1 * r}h${-2.4 * r}z` }),
  (x, y, r) => svg("path", { d: `M${x} ${y - 1.3 * r}l${1.3 * r} ${1.3 * r}l${-1.3 * r} ${1.3 * r}l${-1.3 * r} ${-1.3 * r}z` }),
  (x, y, r) => svg("path", { d: `M${x} ${y + 1.25 * r}l${1.2 * r} ${-2.1 * r}h${-2.4 * r}z` }),
];

function drawMap(points) {
  const { word } = points[0];
  if (points.length === 1) return el("p", { class: "note" }, t("mapNone", { word }));
  const [width, height, margin] = [720, 360, 24];
  const scale = (values, size) => {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return (value) => margin + ((size - 2 * margin) * (value - low)) / (high - low || 1);
  };
  const x = scale(points.map((p) => p.x), width);
  const y = scale(points.map((p) => p.y), height);
  const caption = el("p", { class: "caption", role: "status" });
  const marks = points.map((p, n) => {
    const mark = SHAPES[p.cluster % SHAPES.length](x(p.x), height - y(p.y), n ? 6 : 9);
    mark.setAttribute("class", `point cluster-${p.cluster % SHAPES.length}${n ? "" : " query"}`);
    mark.addEventListener("pointerenter", () => select(n));
    mark.addEventListener("click", () => select(n));
    return mark;
  });
  let selected = 0;

  function select(n) {
    marks[selected].classList.remove("selected");
    selected = n;
    marks[n].classList.add("selected");
    const p = points[n];
    caption.replaceChildren(...(n ? [] : [`${t("yours")}: `]), ...highlighted(p.tokens, p.position));
  }

  const order = points.map((_, n) => n).sort((a, b) => points[a].x - points[b].x);
  function onkeydown(event) {
    const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    select(order[(order.indexOf(selected) + step + order.length) % order.length]);
  }

  const picture = svg(
    "svg",
    {
      viewBox: `0 0 ${width} ${height}`,
      class: "map",
      tabindex: 0,
      role: "img",
      "aria-label": t("mapLabel", { n: points.length - 1, word }),
      onkeydown,
    },
    marks.slice(1),
    marks[0],
  );
  select(0);
  const clusters = [...new Set(points.map((p) => p.cluster))].sort((a, b) => a - b);
  return [
    el("h3", {}, t("map", { word })),
    el("p", { class: "note" }, t("mapIntro")),
    picture,
    caption,
    el(
      "details",
      {},
      el("summary", {}, t("list")),
      clusters.map((cluster) => [
        el("h4", {}, el("span", { class: `swatch cluster-${cluster % SHAPES.length}` }), t("cluster", { n: cluster + 1 })),
        el(
          "ul",
          {},
          points.filter((p) => p.cluster === cluster).map((p) => el("li", {}, ...highlighted(p.tokens, p.position))),
        ),
      ]),
    ),
  ];
}

// A word on its way through the model: bytes, character filters, layers.

import { post } from "./api.js";
import { el, exampleRow, examplesFor, layerName, resultArea, wordPicker } from "./dom.js";
import { t } from "./strings.js";

export const id = "inside";

const EXAMPLES = {
  en: [
    { name: "unbelievable", text: "The result was unbelievable.", i: 3 },
    { name: "bank", text: "He sat by the bank.", i: 4 },
    { name: "café", text: "They met in a small café.", i: 5 },
    { name: "frobnicated", text: "She frobnicated the settings.", i: 1 },
  ],
  ko: [
    { name: "배를", text: "섬에 가려고 배를 탔다.", i: 2 },
    { name: "아름다웠다", text: "바다는 정말 아름다웠다.", i: 2 },
    { name: "서울에서", text: "우리는 서울에서 만났다.", i: 1 },
  ],
};

export function create({ model, save }) {
  const examples = examplesFor(model(), EXAMPLES);
  const result = resultArea();
  const picker = wordPicker({ label: t("sentence"), model: () => model().name, onchange: show });

  const use = ({ text, i }) => picker.set(text, Number(i));

  function show({ tokens, position }) {
    save({ text: picker.value.text, i: position });
    if (position === null) return result.clear();
    return result.show(async () => {
      const answer = await post("inside", { model: model().name, word: { tokens, position } });
      return [
        el("h3", {}, t("bytes", { word: answer.query.word })),
        ...(answer.bytes.length ? characters(answer) : [el("p", { class: "note" }, t("words"))]),
        el("h3", {}, t("vectors")),
        el("p", { class: "note" }, t("vectorsIntro")),
        ...answer.layers.map((layer) => strip(layer, answer.layers.length)),
      ];
    });
  }

  return {
    node: el("div", {}, el("p", { class: "intro" }, t("insideIntro")), exampleRow(examples, use), picker.node, result.node),
    show: (values) => use(values.text ? values : examples[0]),
  };
}

function characters({ bytes, filters }) {
  const cells = bytes.map((b) =>
    el("li", { class: b.value.length > 2 ? "marker" : null }, el("span", {}, b.character ?? " "), el("code", {}, b.value)),
  );
  const seen = (start, width) =>
    bytes
      .slice(start, start + width)
      .map((b) => (b.value === "BOW" ? "^" : b.value === "EOW" ? "$" : (b.character ?? "·")))
      .join("") || "∅";
  return [
    el("p", { class: "note" }, t("bytesIntro")),
    el("ol", { class: "bytes" }, cells),
    el("h3", {}, t("filters")),
    el("p", { class: "note" }, t("filtersIntro")),
    el(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": t("filters") },
      el(
        "table",
        { class: "filters" },
        el("thead", {}, el("tr", {}, ["width", "fired", "strongest"].map((key) => el("th", { scope: "col" }, t(key))))),
        el(
          "tbody",
          {},
          filters.map((group) =>
            el(
              "tr",
              {},
              el("th", { scope: "row" }, String(group.width)),
              el("td", {}, `${group.fired} / ${group.filters}`),
              el(
                "td",
                {},
                group.strongest.map((match) =>
                  el("span", { class: "match" }, el("code", {}, seen(match.start, group.width)), match.activation.toFixed(2)),
                ),
              ),
            ),
          ),
        ),
      ),
    ),
  ];
}

/** A vector as a strip of colors, wrapped into rows. */
function strip({ layer, norm, similarity, values }, count) {
  const columns = 64;
  const half = values.length / 2;
  const rows = Math.ceil(half / columns);
  const canvas = el("canvas", {
    width: 2 * columns + 2,
    height: rows,
    class: "strip",
    role: "img",
    "aria-label": t("strip", { n: layer }),
  });
  const context = canvas.getContext("2d");
  const largest = Math.max(...values.map(Math.abs)) || 1;
  values.forEach((value, d) => {
    const side = d < half ? 0 : 1;
    const index = d - side * half;
    const strength = Math.sqrt(Math.abs(value) / largest);
    context.fillStyle = value > 0 ? `rgb(230 120 20 / ${strength})` : `rgb(30 110 190 / ${strength})`;
    context.fillRect((index % columns) + side * (columns + 2), Math.floor(index / columns), 1, 1);
  });
  return el(
    "figure",
    {},
    el(
      "figcaption",
      {},
      el("strong", {}, layerName(layer, count)),
      ` · ${t("norm", { x: norm.toFixed(1) })} · ${t("toZero", { x: similarity.toFixed(3) })}`,
    ),
    canvas,
  );
}

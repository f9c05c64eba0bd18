// Two words in two sentences, layer by layer, and all pairs of words.

import { post } from "./api.js";
import { bars, choice, el, exampleRow, examplesFor, layerName, resultArea, wordPicker } from "./dom.js";
import { t } from "./strings.js";

export const id = "context";

const EXAMPLES = {
  en: [
    { name: "bank", first: "He sat by the bank and watched the river.", i: 4, second: "The bank raised its interest rates.", j: 1 },
    { name: "play", first: "The shortstop made a spectacular play on a ground ball.", i: 5, second: "The actress agreed to star in a new play on Broadway.", j: 8 },
    { name: "spring", first: "The old mattress had a broken spring.", i: 6, second: "The roses bloom every spring.", j: 4 },
    { name: "light / lamp", first: "She turned on the light in the hall.", i: 4, second: "He switched off the lamp in the kitchen.", j: 4 },
  ],
  ko: [
    { name: "배", first: "우리는 배를 타고 섬으로 갔다.", i: 1, second: "가을에는 배를 자주 먹는다.", j: 1 },
    { name: "눈", first: "밤새 눈이 많이 내렸다.", i: 1, second: "아이는 눈이 크고 맑다.", j: 1 },
  ],
};

export function create({ model, save }) {
  const result = resultArea();
  let layer = null;
  let compared = null;
  const first = wordPicker({ label: t("first"), model: () => model().name, onchange: compare });
  const second = wordPicker({ label: t("second"), model: () => model().name, onchange: compare });
  const examples = examplesFor(model(), EXAMPLES);

  async function use({ first: a, i, second: b, j, layer: wanted }) {
    layer = wanted ?? null;
    await Promise.all([first.set(a, Number(i)), second.set(b, Number(j))]);
  }

  function compare() {
    const [a, b] = [first.value, second.value];
    save({ first: a.text, i: a.position, second: b.text, j: b.position, layer });
    if (a.position === null || b.position === null) return result.clear();
    return result.show(async () => {
      compared = await post("similarity", {
        model: model().name,
        first: { tokens: a.tokens, position: a.position },
        second: { tokens: b.tokens, position: b.position },
        matrix: true,
      });
      return draw();
    });
  }

  function draw() {
    const count = compared.layers.length;
    const shown = Math.min(layer ?? count - 1, count - 1);
    const table = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": t("heat") }, heatMap(compared, shown));
    const pickLayer = (n) => {
      layer = Number(n);
      save({ layer });
      table.replaceChildren(heatMap(compared, layer));
    };
    return [
      el("h3", {}, t("byLayer", { a: compared.first.word, b: compared.second.word })),
      bars(compared.layers.map((value, n) => ({ label: layerName(n, count), value }))),
      el("h3", {}, t("heat")),
      choice(t("heatLayer"), compared.layers.map((_, n) => [n, layerName(n, count)]), shown, pickLayer),
      table,
    ];
  }

  return {
    node: el(
      "div",
      {},
      el("p", { class: "intro" }, t("contextIntro")),
      exampleRow(examples, use),
      el("div", { class: "columns" }, first.node, second.node),
      result.node,
    ),
    show: (values) => use(values.first ? { ...values, layer: values.layer && Number(values.layer) } : examples[0]),
  };
}

function heatMap({ first, second, matrix }, layer) {
  const pressed = (on) => (on ? "picked" : null);
  return el(
    "table",
    { class: "heat" },
    el(
      "thead",
      {},
      el("tr", {}, el("td"), second.tokens.map((token, j) => el("th", { scope: "col", class: pressed(j === second.position) }, token))),
    ),
    el(
      "tbody",
      {},
      first.tokens.map((token, i) =>
        el(
          "tr",
          {},
          el("th", { scope: "row", class: pressed(i === first.position) }, token),
          second.tokens.map((_, j) => {
            const value = matrix[layer][i][j];
            const picked = i === first.position && j === second.position;
            return el("td", { "--heat-value": `${100 * Math.max(0, value)}%`, class: pressed(picked) }, value.toFixed(2).replace("-0.00", "0.00"));
          }),
        ),
      ),
    ),
  );
}

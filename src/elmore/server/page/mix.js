// Eq. (1) of the paper: sliders for w and gamma, and the neighbors of the mixed vector.

import { post } from "./api.js";
import { bars, debounce, el, exampleRow, examplesFor, newId, resultArea, wordPicker } from "./dom.js";
import { EXAMPLES, neighborList } from "./neighbors.js";
import { t } from "./strings.js";

export const id = "mix";

export function create({ model, save }) {
  const examples = examplesFor(model(), EXAMPLES);
  const count = model().layers;
  const result = resultArea();
  const shares = el("div", { class: "shares" });
  const picker = wordPicker({ label: t("sentence"), model: () => model().name, onchange: search });
  const weights = Array.from({ length: count }, (_, n) => slider(t("weight", { n }), -6, 6, 0.1, 0));
  const gamma = slider(t("gamma"), 0.1, 5, 0.1, 1);
  const searchSoon = debounce(search, 120);

  function slider(label, min, max, step, value) {
    const name = newId("slider");
    const output = el("output", { for: name }, value.toFixed(1));
    const input = el("input", {
      id: name, type: "range", min, max, step, value,
      oninput() {
        output.textContent = Number(input.value).toFixed(1);
        drawShares();
        searchSoon();
      },
    });
    return {
      node: el("div", { class: "slider" }, el("label", { for: name }, label), input, output),
      get value() {
        return Number(input.value);
      },
      set value(x) {
        input.value = x;
        output.textContent = Number(input.value).toFixed(1);
      },
    };
  }

  function drawShares() {
    const terms = weights.map((w) => Math.exp(w.value));
    const sum = terms.reduce((a, b) => a + b);
    shares.replaceChildren(bars(terms.map((term, n) => ({ label: t("share", { n }), value: term / sum }))));
  }

  function setWeights(values, scale = 1) {
    weights.forEach((w, n) => (w.value = values[n] ?? 0));
    gamma.value = scale;
    drawShares();
  }

  function search() {
    const { text, tokens, position } = picker.value;
    save({ text, i: position, w: weights.map((w) => w.value).join(","), gamma: gamma.value });
    if (position === null) return result.clear();
    return result.show(async () => {
      const answer = await post("neighbors", {
        model: model().name,
        word: { tokens, position },
        k: 8,
        mix: { weights: weights.map((w) => w.value), gamma: gamma.value },
      });
      return [
        el("h3", {}, t("mixed")),
        el("p", { class: "note" }, t("length", { x: answer.length.toFixed(1) })),
        neighborList(answer.neighbors),
      ];
    });
  }

  function use({ text, i, w, gamma: scale }) {
    if (w) setWeights(w.split(",").map(Number), Number(scale) || 1);
    return picker.set(text, Number(i));
  }

  const presets = [
    { name: t("equal"), w: Array(count).fill(0) },
    ...Array.from({ length: count }, (_, n) => ({
      name: t("onlyLayer", { n }),
      w: Array.from({ length: count }, (_, j) => (j === n ? 6 : -6)),
    })),
  ];
  if (model().corpus_sentences === null) {
    return { node: el("p", { class: "note" }, t("noCorpus")), show() {} };
  }
  drawShares();
  return {
    node: el(
      "div",
      {},
      el("p", { class: "intro" }, t("mixIntro")),
      exampleRow(examples, use),
      picker.node,
      el(
        "div",
        { class: "columns" },
        el(
          "div",
          {},
          el(
            "div",
            { class: "examples" },
            presets.map(({ name, w }) =>
              el("button", { type: "button", class: "chip", onclick: () => { setWeights(w, gamma.value); search(); } }, name),
            ),
          ),
          weights.map((w) => w.node),
          gamma.node,
          shares,
        ),
        result.node,
      ),
    ),
    show: (values) => use(values.text ? values : examples[1]),
  };
}

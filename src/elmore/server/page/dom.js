// Elements, and parts that several panels share.

import { post } from "./api.js";
import { t } from "./strings.js";

const SVG = "http://www.w3.org/2000/svg";

/** Create an element: el("p", {class: "note", onclick: f}, "text", child). */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Create an SVG element. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) node.style.setProperty(name, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

let ids = 0;
export const newId = (prefix) => `${prefix}-${++ids}`;

/** Call f once, some time after the last call. */
export function debounce(f, milliseconds = 250) {
  let timer;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => f(...args), milliseconds);
  };
}

/** A place for results, which tells screen readers what happens and shows errors where they occur. */
export function resultArea() {
  const status = el("p", { class: "status", role: "status" });
  const body = el("div", { class: "result" });
  let latest = 0;
  return {
    node: el("div", { class: "result-area" }, status, body),
    clear(message = "") {
      latest++;
      status.className = "status";
      status.textContent = message;
      body.replaceChildren();
    },
    /** Show what an async function returns, unless a later call has been made. */
    async show(compute) {
      const number = ++latest;
      const slow = setTimeout(() => {
        if (number === latest) status.textContent = `${t("computing")} …`;
      }, 150);
      body.classList.add("stale");
      try {
        const nodes = await compute();
        if (number !== latest) return;
        status.className = "status";
        status.textContent = "";
        body.replaceChildren(...[nodes].flat());
      } catch (error) {
        if (number !== latest) return;
        status.className = "status error";
        status.textContent = error.message;
        body.replaceChildren();
      } finally {
        clearTimeout(slow);
        if (number === latest) body.classList.remove("stale");
      }
    },
  };
}

/**
 * A text field whose words are buttons; `onchange` is called with {tokens, position}.
 * The value can be read as {text, position} and set.
 */
export function wordPicker({ label, hint = t("pick"), onchange, model }) {
  const id = newId("text");
  const input = el("input", { id, type: "text", maxlength: 1000, autocomplete: "off", spellcheck: "false" });
  const words = el("div", { class: "words", role: "group", "aria-label": `${label}: ${hint}` });
  const status = el("p", { class: "status", role: "status" });
  let tokens = [];
  let position = null;
  let number = 0;

  function draw() {
    words.replaceChildren(
      ...tokens.map((token, i) =>
        el("button", { type: "button", class: "word", "aria-pressed": String(i === position), onclick: () => choose(i) }, token),
      ),
    );
  }

  function choose(i) {
    position = i;
    [...words.children].forEach((button, j) => button.setAttribute("aria-pressed", String(i === j)));
    onchange({ tokens, position });
  }

  async function update(wanted = null) {
    const mine = ++number;
    const word = tokens[position];
    try {
      status.className = "status";
      const text = input.value.trim();
      const answer = text ? await post("tokenize", { texts: [text], model: model() }) : { tokens: [[]] };
      if (mine !== number) return;
      tokens = answer.tokens[0];
      status.textContent = text ? "" : t("empty");
    } catch (error) {
      if (mine !== number) return;
      tokens = [];
      status.className = "status error";
      status.textContent = error.message;
    }
    const kept = wanted ?? (tokens[position] === word ? position : tokens.indexOf(word));
    position = tokens.length ? Math.min(Math.max(kept, 0), tokens.length - 1) : null;
    draw();
    onchange({ tokens, position });
  }

  input.addEventListener("input", debounce(() => update()));
  return {
    node: el("div", { class: "picker" }, el("label", { for: id }, label), input, words, status),
    get value() {
      return { text: input.value, tokens, position };
    },
    set(text, wanted) {
      input.value = text;
      return update(wanted);
    },
  };
}

/** The examples in the language of a model, or those in English. */
export const examplesFor = ({ language }, examples) => examples[language] ?? examples.en;

/** Buttons that fill in examples. */
export function exampleRow(examples, use) {
  return el(
    "div",
    { class: "examples", role: "group", "aria-label": t("examples") },
    el("span", {}, t("examples")),
    ...examples.map((example) =>
      el("button", { type: "button", class: "chip", onclick: () => use(example) }, example.name),
    ),
  );
}

/** Bars with a label and a value from 0 to 1. */
export function bars(rows) {
  return el(
    "dl",
    { class: "bars" },
    rows.map(({ label, value, text, strong }) => [
      el("dt", { class: strong ? "strong" : null }, label),
      el(
        "dd",
        {},
        el("span", { class: "track" }, el("span", { class: "bar", "--value": `${100 * Math.max(0, Math.min(1, value))}%` })),
        el("span", { class: "number" }, text ?? value.toFixed(3)),
      ),
    ]),
  );
}

/** A sentence with one word highlighted. Punctuation follows its word without a space. */
export function highlighted(tokens, position) {
  const space = (i) => (i > 0 && !/^[.,;:!?)\]%\u2019]+$|^'(s|t|re|ve|ll|d|m)?$/i.test(tokens[i]) ? " " : "");
  const join = (start, end) => tokens.slice(start, end).map((token, i) => space(start + i) + token).join("");
  return [
    join(0, position) + space(position),
    el("mark", {}, tokens[position]),
    join(position + 1, tokens.length),
  ];
}

/** Radio buttons in a row. */
export function choice(legend, options, value, onchange) {
  const name = newId("choice");
  return el(
    "fieldset",
    { class: "choice" },
    el("legend", {}, legend),
    options.map(([key, label]) =>
      el(
        "label",
        {},
        el("input", { type: "radio", name, value: key, checked: String(key) === String(value), onchange: () => onchange(key) }),
        label,
      ),
    ),
  );
}

export function layerName(n, count) {
  const meaning = count === 3 ? t("layers")[n] : n === 0 ? t("layers")[0] : null;
  return meaning ? `${t("layer", { n })}: ${meaning}` : t("layer", { n });
}

// The trained tasks: their inputs, and their predictions in the form that suits each.

import { post } from "./api.js";
import { bars, choice, el, exampleRow, newId, resultArea, wordPicker } from "./dom.js";
import { t } from "./strings.js";

export const id = "tasks";

const SIX = ["ner", "srl", "coref", "qa", "entailment", "sentiment"];

const EXAMPLES = {
  ner: [
    { name: "Ada", text: "Ada Lovelace lived in London and wrote to Charles Babbage." },
    { name: "Oxford", text: "The University of Oxford and Microsoft opened a lab in Cambridge." },
  ],
  srl: [
    { name: "gave", text: "She gave him a book in the library yesterday.", i: 1 },
    { name: "broke", text: "The storm broke the window while we were eating.", i: 2 },
  ],
  coref: [
    { name: "Curie", text: "Marie Curie was born in Warsaw. She moved to Paris, where the physicist met her husband." },
    { name: "The company", text: "The company said it would close its plant. The decision surprised the workers, who had trusted their managers." },
  ],
  qa: [
    { name: "Bologna", question: "Which university is the oldest in Europe?", passage: "The University of Bologna, founded in 1088, is the oldest university in Europe. It was followed by Oxford and Paris." },
    { name: "Why?", question: "Why did the match end early?", passage: "The match was abandoned after an hour because heavy rain had flooded the pitch. It will be replayed on Tuesday." },
  ],
  entailment: [
    { name: "guitar", premise: "A man is playing a guitar on stage.", hypothesis: "A man is making music." },
    { name: "silence", premise: "A man is playing a guitar on stage.", hypothesis: "The stage is empty." },
  ],
  sentiment: [
    { name: "charming", text: "A charming, funny film that never runs out of ideas." },
    { name: "mixed", text: "The cast is excellent, but nothing can save this tired plot." },
  ],
  classify: [{ name: "text", text: "The parcel arrived two weeks late." }],
  tag: [{ name: "time", text: "Time flies like an arrow." }],
};

export function create({ model, tasks, save }) {
  const kinds = [...SIX, ...new Set(tasks.map((task) => task.task).filter((kind) => !SIX.includes(kind)))];
  const area = el("div", { class: "task" });
  let kind = null;

  function show(values) {
    kind = kinds.includes(values.task) ? values.task : (kinds.find((k) => tasks.some((task) => task.task === k)) ?? kinds[0]);
    chooser.querySelectorAll("input").forEach((input) => (input.checked = input.value === kind));
    const loaded = tasks.filter((task) => task.task === kind);
    const remember = (more) => save({ task: kind, ...more }, { replace: true });
    area.replaceChildren(
      el("p", { class: "note" }, t(`about.${kind}`)),
      ...(loaded.length ? form(kind, loaded, model, remember, values) : [howToLoad(kind)]),
    );
    if (!loaded.length) remember({});
  }

  const chooser = choice(t("task"), kinds.map((k) => [k, t(`names.${k}`)]), kind, (k) => show({ task: k }));
  return { node: el("div", {}, el("p", { class: "intro" }, t("tasksIntro")), chooser, area), show };
}

function howToLoad(kind) {
  const suffix = { qa: "json", entailment: "jsonl", sentiment: "txt" }[kind] ?? "conll";
  return el(
    "div",
    { class: "note" },
    el("p", {}, t("notLoaded")),
    el(
      "pre",
      { tabindex: 0 },
      `elmore train ${kind} --train train.${suffix} --dev dev.${suffix} -o runs/${kind}\nelmore serve --task runs/${kind}`,
    ),
  );
}

/** Fields, examples, and a result for each loaded task of a kind, those with ELMo first. */
function form(kind, loaded, model, remember, values) {
  const result = resultArea();
  const sorted = [...loaded].sort((a, b) => Number(b.elmo) - Number(a.elmo));
  const examples = EXAMPLES[kind] ?? [{ name: "text", text: "He sat by the bank." }];
  const predict = (input) =>
    result.show(async () => {
      const answers = await Promise.all(sorted.map((task) => post(`tasks/${encodeURIComponent(task.name)}`, { inputs: [input] })));
      return el(
        "div",
        { class: answers.length > 1 ? "columns" : null },
        answers.map((answer, n) =>
          el("section", {}, el("h3", {}, heading(sorted[n], sorted)), ...render(kind, answer.predictions[0], input)),
        ),
      );
    });

  if (kind === "srl") {
    const picker = wordPicker({
      label: t("sentence"),
      hint: t("verb"),
      model: () => model().name,
      onchange({ tokens, position }) {
        remember({ text: picker.value.text, i: position });
        if (position === null) return result.clear();
        const words = tokens.map((token, n) => (n === position ? `[${token}]` : token.replace(/[[\]]/g, "|")));
        return predict(words.join(" "));
      },
    });
    const use = ({ text, i }) => picker.set(text, Number(i));
    use(values.text ? values : examples[0]);
    return [exampleRow(examples, use), picker.node, result.node];
  }

  const names = loaded[0].inputs;
  const fields = Object.fromEntries(
    names.map((name) => {
      const long = name === "passage" || kind === "coref";
      return [name, el(long ? "textarea" : "input", { id: newId(name), maxlength: 8000, autocomplete: "off", ...(long ? { rows: 4 } : { type: "text" }) })];
    }),
  );
  function submit(event) {
    event?.preventDefault();
    const input = Object.fromEntries(names.map((name) => [name, fields[name].value]));
    remember(input);
    if (names.some((name) => !input[name].trim())) return result.clear(t("empty"));
    return predict(input);
  }
  function use(example) {
    names.forEach((name) => (fields[name].value = example[name] ?? ""));
    return submit();
  }
  use(names.some((name) => values[name]) ? values : examples[0]);
  return [
    exampleRow(examples, use),
    el(
      "form",
      { onsubmit: submit },
      names.map((name) => el("div", { class: "field" }, el("label", { for: fields[name].id }, t(`inputs.${name}`)), fields[name])),
      el("button", { type: "submit" }, t("run")),
    ),
    result.node,
  ];
}

function heading(task, all) {
  const same = all.filter((other) => other.elmo === task.elmo).length > 1;
  const text = task.elmo ? t("withElmo") : t("withoutElmo");
  return same ? `${text}: ${task.name}` : text;
}

function render(kind, prediction, input) {
  if (prediction.error) return [el("p", { class: "status error" }, prediction.error)];
  if (prediction.probabilities && !Array.isArray(prediction.probabilities)) return [classBars(prediction)];
  switch (kind) {
    case "ner":
      return [marked(prediction.text, prediction.entities)];
    case "srl":
      return [roles(prediction)];
    case "coref":
      return [
        marked(
          prediction.text,
          prediction.clusters.flatMap((cluster, n) => cluster.map((mention) => ({ ...mention, label: String(n + 1), color: n }))),
        ),
      ];
    case "qa":
      return answer(prediction, input.passage);
    case "tag":
      return [el("p", { class: "tags" }, prediction.tokens.map((token, n) => el("span", { class: "tag" }, token, el("small", {}, prediction.tags[n]))))];
    default:
      return [el("pre", { tabindex: 0 }, JSON.stringify(prediction, null, 2))];
  }
}

function classBars({ label, labels = [label], probabilities }) {
  return bars(
    Object.entries(probabilities).map(([name, value]) => ({
      label: name,
      value,
      text: `${(100 * value).toFixed(1)} %`,
      strong: labels.includes(name),
    })),
  );
}

/** Text with labeled spans, which may be nested. Offsets count code points. */
function marked(text, spans) {
  if (!spans.length) return el("p", { class: "note" }, t("nothing"));
  const points = Array.from(text);
  const sorted = [...spans].sort((a, b) => a.start_char - b.start_char || b.end_char - a.end_char);
  function build(start, end, inner) {
    const parts = [];
    let at = start;
    let rest = inner;
    while (rest.length) {
      const [span, ...others] = rest;
      if (span.start_char < at || span.end_char > end) {
        rest = others; // crosses another span
        continue;
      }
      parts.push(points.slice(at, span.start_char).join(""));
      const nested = others.filter((other) => other.start_char < span.end_char);
      rest = others.filter((other) => other.start_char >= span.end_char);
      parts.push(
        el(
          "span",
          { class: `span color-${(span.color ?? colorOf(span.label)) % 6}`, title: span.probability?.toFixed(3) },
          ...build(span.start_char, span.end_char, nested),
          el("small", {}, span.label),
        ),
      );
      at = span.end_char;
    }
    return [...parts, points.slice(at, end).join("")];
  }
  return el("p", { class: "marked" }, ...build(0, points.length, sorted));
}

/** A color for a label, the same in all results. */
function colorOf(label) {
  const common = ["PER", "LOC", "ORG", "MISC"].indexOf(label);
  return common >= 0 ? common : Array.from(label).reduce((sum, c) => sum + c.codePointAt(0), 0);
}

/** The roles of a verb as labeled brackets below the words. */
function roles({ tokens, predicate, roles: spans }) {
  const cells = [];
  for (let i = 0; i < tokens.length; ) {
    const span = spans.find((role) => role.start === i);
    const end = span ? span.end : i + 1;
    const words = tokens.slice(i, end).join(" ");
    cells.push(
      el(
        "span",
        { class: span ? `role color-${(span.label.match(/\d/)?.[0] ?? 5) % 6}` : "role none", title: span?.probability?.toFixed(3) },
        i === predicate ? el("strong", {}, words) : words,
        el("small", {}, span?.label ?? " "),
      ),
    );
    i = Math.max(end, i + 1);
  }
  return el("p", { class: "roles" }, cells);
}

function answer({ answer: text, start, end, probability }, passage) {
  const points = Array.from(passage);
  return [
    el("p", {}, el("strong", {}, text), ` (${(100 * probability).toFixed(0)} %)`),
    el("p", { class: "marked" }, points.slice(0, start).join(""), el("mark", {}, points.slice(start, end).join("")), points.slice(end).join("")),
  ];
}

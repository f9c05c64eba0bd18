// Tabs, language, theme, and the state of the page.

import { get, onTokenNeeded } from "./api.js";
import * as context from "./context.js";
import { el } from "./dom.js";
import * as inside from "./inside.js";
import * as mix from "./mix.js";
import * as neighbors from "./neighbors.js";
import { readState, writeState } from "./state.js";
import { language, setLanguage, t } from "./strings.js";
import * as tasks from "./tasks.js";

const PANELS = [context, neighbors, mix, tasks, inside];
const $ = (id) => document.getElementById(id);
const main = $("main");
let loaded = null;
let model = null;
let panel = null;
let values = {};

setLanguage(localStorage.getItem("language") ?? navigator.languages.find((l) => /^(en|ko)\b/.test(l))?.slice(0, 2) ?? "en");
setTheme(localStorage.getItem("theme"));

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function translate() {
  document.querySelectorAll("[data-t]").forEach((node) => (node.textContent = t(node.dataset.t)));
  $("language").textContent = t("language");
  $("language").setAttribute("aria-label", `${t("language")}: ${t("languageLabel")}`);
  $("language").lang = language() === "en" ? "ko" : "en";
  $("theme").textContent = t(isDark() ? "light" : "dark");
  $("theme").title = t("themeLabel");
}

$("language").addEventListener("click", () => {
  setLanguage(language() === "en" ? "ko" : "en");
  localStorage.setItem("language", language());
  translate();
  drawTabs();
  open(panel.id, values);
});

$("theme").addEventListener("click", () => {
  setTheme(isDark() ? "light" : "dark");
  localStorage.setItem("theme", document.documentElement.dataset.theme);
  translate();
});

function drawTabs() {
  $("tabs").replaceChildren(
    ...PANELS.map(({ id }) =>
      el(
        "button",
        { type: "button", role: "tab", id: `tab-${id}`, "aria-controls": "panel", "aria-selected": "false", tabindex: -1, onclick: () => switchTo(id) },
        t(id),
      ),
    ),
  );
}

$("tabs").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const next = PANELS[(PANELS.findIndex(({ id }) => id === panel.id) + step + PANELS.length) % PANELS.length];
  switchTo(next.id);
  $(`tab-${next.id}`).focus();
});

function switchTo(id) {
  writeState(id, {}, { push: true });
  open(id, {});
}

/** Show a panel with the values of its address. */
function open(id, given) {
  panel = PANELS.find((p) => p.id === id) ?? PANELS[0];
  values = { ...given };
  const opened = panel;
  document.querySelectorAll("[role=tab]").forEach((tab) => {
    const selected = tab.id === `tab-${panel.id}`;
    tab.setAttribute("aria-selected", String(selected));
    tab.tabIndex = selected ? 0 : -1;
    if (selected) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
  });
  const save = (more, { replace = false } = {}) => {
    if (opened !== panel) return;
    values = { ...(replace ? {} : values), ...more };
    const named = loaded.models.length > 1 ? { model: model.name } : {};
    writeState(panel.id, { ...named, ...values });
  };
  const shown = panel.create({ model: () => model, tasks: loaded.tasks, save });
  $("panel")?.remove();
  main.append(el("section", { id: "panel", role: "tabpanel", "aria-labelledby": `tab-${panel.id}` }, el("h2", {}, t(panel.id)), shown.node));
  shown.show(given);
}

function openAddress() {
  const state = readState();
  model = loaded.models.find((m) => m.name === state.values.model) ?? model ?? preferredModel();
  $("model").value = model.name;
  open(state.panel, state.values);
}

/** A model for the language of the page, or the first one. */
function preferredModel() {
  return loaded.models.find((m) => m.language === language()) ?? loaded.models[0];
}

function askForToken() {
  const form = $("token");
  form.hidden = false;
  $("token-value").focus();
  return new Promise((resolve) => {
    form.onsubmit = (event) => {
      event.preventDefault();
      form.hidden = true;
      resolve($("token-value").value.trim());
    };
  });
}

async function start() {
  translate();
  onTokenNeeded(askForToken);
  $("boot").textContent = `${t("loading")} …`;
  try {
    loaded = await get("models");
  } catch (error) {
    $("boot").className = "status error";
    $("boot").textContent = error.message;
    return;
  }
  $("boot").textContent = "";
  $("model").replaceChildren(...loaded.models.map((m) => el("option", { value: m.name }, `${m.name} (${m.language})`)));
  document.querySelector(".model").hidden = loaded.models.length < 2;
  $("model").addEventListener("change", () => {
    model = loaded.models.find((m) => m.name === $("model").value);
    writeState(panel.id, { model: model.name }, { push: true });
    open(panel.id, {});
  });
  drawTabs();
  openAddress();
  addEventListener("popstate", openAddress);
  document.documentElement.dataset.ready = "true";
}

start();

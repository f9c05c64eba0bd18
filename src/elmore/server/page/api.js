// Calls of the API, with the token if the server needs one.

import { t } from "./strings.js";

let token = sessionStorage.getItem("token");
let askForToken = null;

/** Set the function that asks the user for a token and returns a promise of it. */
export function onTokenNeeded(ask) {
  askForToken = ask;
}

export const get = (path) => call(path, { method: "GET" });

export const post = (path, body) =>
  call(path, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });

async function call(path, options) {
  for (let attempt = 0; ; attempt++) {
    const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
    let response;
    try {
      response = await fetch(`v1/${path}`, { ...options, headers });
    } catch {
      throw new Error(t("failed"));
    }
    if (response.status === 401 && askForToken) {
      token = await askForToken();
      sessionStorage.setItem("token", token);
      continue;
    }
    if (response.status === 429 && attempt < 30) {
      const seconds = Number(response.headers.get("Retry-After")) || 1;
      await new Promise((resolve) => setTimeout(resolve, 1000 * Math.min(seconds, 5)));
      continue;
    }
    const body = await response.json().catch(() => ({}));
    if (!response.ok) throw new Error(body.detail ?? `HTTP ${response.status}`);
    return body;
  }
}

// The state of the page in its address: #panel?name=value. A view can be shared as a link.

export function readState() {
  const [panel, query = ""] = location.hash.slice(1).split(/\?(.*)/s);
  return { panel, values: Object.fromEntries(new URLSearchParams(query)) };
}

export function writeState(panel, values, { push = false } = {}) {
  const query = new URLSearchParams(
    Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== ""),
  );
  const hash = `#${panel}${query.size ? `?${query}` : ""}`;
  if (hash === location.hash) return;
  history[push ? "pushState" : "replaceState"](null, "", hash);
}

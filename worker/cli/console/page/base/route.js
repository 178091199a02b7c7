// The address of a view is in the hash: #/path?name=value. So a view with its filters can be linked, and the server serves one page.
import {createStore, useStore} from "./state.js";

export const route = createStore(parse(location.hash));

export function listenToRoute() {
  addEventListener("hashchange", () => route.set(parse(location.hash)));
}

export const useRoute = () => useStore(route);

// For href. Parameters without a value are left out.
export function linkTo(path, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return `#/${path}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
}

export function goTo(path, parameters = {}) {
  location.hash = linkTo(path, parameters);
}

// Changes parameters of this view without a new entry in the history.
export function setParameters(parameters) {
  const {path, parameters: old} = route.get();
  history.replaceState(null, "", linkTo(path, {...old, ...parameters}));
  route.set(parse(location.hash));
}

function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return {path: path || "overview", parameters: Object.fromEntries(new URLSearchParams(query))};
}

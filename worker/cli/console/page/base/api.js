// The API of the console: requests, the session, and errors with their cause.
import {createStore} from "./state.js";

// `state`: unknown (not asked yet), out (never logged in), in, or ended (the view stays below the log-in form).
// `count` changes with each log-in, so that what has failed loads again.
export const session = createStore({state: "unknown", count: 0});

class ApiError extends Error {
  constructor(status, message, {sqlstate = "", retryAfter = 0, explained = false} = {}) {
    super(message);
    this.name = "ApiError";
    this.status = status; // 0: the console did not answer
    this.sqlstate = sqlstate;
    this.retryAfter = retryAfter; // seconds
    this.explained = explained; // by the console, not by something in front of it
  }
}

// Tabs share the cookie. Where one logs in or out, the others must not go on with the role and the token that they know.
const tabs = new BroadcastChannel("postbox-console");
tabs.addEventListener("message", () => findSession().catch(ignore)); // What fails is found by the next read.

// A session runs one statement at a time, and the console refuses many requests of one. So reads wait for each other here.
let lastRead = Promise.resolve();

export function get(path, parameters = {}, signal = undefined) {
  const run = lastRead.then(() => {
    signal?.throwIfAborted();
    return ask(path + query(parameters), {signal});
  });
  lastRead = run.then(ignore, ignore);
  return run;
}

export function post(path, body, signal = undefined) {
  const headers = {"Content-Type": "application/json"};
  const {csrf} = session.get();
  if (csrf) headers["X-Postbox-CSRF"] = csrf;
  return ask(path, {method: "POST", headers, body: JSON.stringify(body), signal});
}

// Asks whether the browser has a session: from before the page was loaded, or of another tab.
export async function findSession() {
  try {
    begin(await ask("session", {}));
  } catch (error) {
    if (error.status !== 401) throw error;
  }
}

// `secret` has role and password, or token.
export async function logIn(secret) {
  begin(await post("login", secret));
  tabs.postMessage("");
}

// Throws where the session may still be there: the page must not look as if it were not.
export async function logOut() {
  try {
    await post("logout", {});
  } catch (error) {
    if (error.status !== 401) throw error;
  }
  session.set({state: "out", count: session.get().count});
  tabs.postMessage("");
}

export const isAborted = (error) => error?.name === "AbortError";

function begin(answer) {
  session.set({...answer, state: "in", count: session.get().count + 1});
}

function query(parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `?${new URLSearchParams(given.map(([name, value]) => [name, String(value)]))}` : "";
}

async function ask(path, options) {
  let response;
  let text;
  try {
    response = await fetch(`api/${path}`, {credentials: "same-origin", cache: "no-store", redirect: "error", ...options});
    text = await response.text();
  } catch (error) {
    if (isAborted(error)) throw error;
    throw new ApiError(0, "the console does not answer");
  }
  if (response.ok) return text ? JSON.parse(text) : null;
  const error = errorOf(response, text);
  if (error.status === 401 && !path.startsWith("login")) sessionEnded();
  throw error;
}

// A proxy in front of the console may answer with a page of its own instead of JSON.
function errorOf(response, text) {
  const retryAfter = Number(response.headers.get("Retry-After")) || 0;
  try {
    const {error} = JSON.parse(text);
    return new ApiError(response.status, String(error.message), {sqlstate: error.sqlstate ?? "", retryAfter, explained: true});
  } catch {
    return new ApiError(response.status, `the answer has status ${response.status} and no explanation`, {retryAfter});
  }
}

function sessionEnded() {
  const before = session.get();
  const state = before.state === "in" || before.state === "ended" ? "ended" : "out";
  session.set({...before, state, csrf: undefined});
}

function ignore() {}

// Data that is read again and again: at the interval that the user has chosen, only while the tab is visible, one request at a time.
import {isAborted, session} from "./api.js";
import {useEffect, useRef, useState} from "./html.js";
import {createKeptStore, createStore, useStore} from "./state.js";

export const intervals = [5, 15, 0]; // seconds; 0: off
export const refreshEvery = createKeptStore("refresh", intervals, 5);

// What the header shows: when the view was read, whether it is being read, whether the last read failed.
export const refreshState = createStore({at: 0, busy: false, failed: false});

const longestPause = 60; // seconds between attempts that fail
const final = [400, 403, 404]; // what trying again does not change
const pollers = new Map(); // of the view that is shown, with their states

// Reads everything that is shown now, for example after an action.
export function refreshNow() {
  for (const poller of pollers.keys()) poller.runNow();
}

// `load(signal)` returns a promise. It is called again when a value of `inputs` changes. Returns {data, error, at, busy, reload}. Data stays
// where a later read fails, so that the user sees the last known state, and the error beside it. What costs the database more is read at
// most every `atLeast` seconds, and does not count for the age of the view. With `once` it is read again only when the user asks. Data with a
// member `rest` say how many seconds the next read has to wait.
export function usePolled(load, inputs = [], {atLeast = 0, once = false} = {}) {
  const [state, setState] = useState({data: undefined, error: null, at: 0, busy: true});
  const chosen = useStore(refreshEvery);
  const every = once ? 0 : chosen && Math.max(chosen, atLeast);
  const {state: log, count} = useStore(session);
  const latest = useRef(load);
  latest.current = load;
  const poller = useRef(null);
  useEffect(() => {
    if (log !== "in") return undefined;
    poller.current = new Poller((signal) => latest.current(signal), {every, slow: atLeast > 0}, setState);
    poller.current.runNow();
    return () => poller.current.stop();
  }, [...inputs, every, log, count]);
  return {...state, reload: () => poller.current?.runNow()};
}

class Poller {
  #load;
  #every;
  #setState;
  #timer = 0;
  #abort = null; // of the request under way
  #due = 0; // when the next one begins; 0: no time is set
  #failures = 0; // since the last success
  #again = false; // it was asked for while a request was under way, which may have read too early
  #stopped = false;

  constructor(load, {every, slow}, setState) {
    this.#load = load;
    this.#every = every;
    this.#setState = setState;
    pollers.set(this, {slow});
    document.addEventListener("visibilitychange", this.#onVisibility);
  }

  runNow() {
    clearTimeout(this.#timer);
    this.#run();
  }

  stop() {
    this.#stopped = true;
    clearTimeout(this.#timer);
    this.#abort?.abort();
    document.removeEventListener("visibilitychange", this.#onVisibility);
    pollers.delete(this);
    sumUp();
  }

  // A hidden tab reads nothing. When it is shown again, it reads at once if its time has passed.
  #onVisibility = () => {
    clearTimeout(this.#timer);
    if (!document.hidden && this.#due && !this.#abort) this.#schedule(Math.max(0, (this.#due - Date.now()) / 1000));
  };

  #schedule(seconds) {
    this.#due = Date.now() + seconds * 1000;
    clearTimeout(this.#timer);
    if (!document.hidden) this.#timer = setTimeout(() => this.#run(), seconds * 1000);
  }

  #scheduleNext(error, rest) {
    this.#failures = error ? this.#failures + 1 : 0;
    const backoff = error ? Math.min(longestPause, 5 * 2 ** (this.#failures - 1)) : 0;
    this.#due = 0;
    if (this.#every) this.#schedule(Math.max(this.#every, backoff, error?.retryAfter ?? 0, rest));
  }

  async #run() {
    if (this.#stopped) return;
    if (this.#abort) {
      this.#again = true;
      return;
    }
    this.#abort = new AbortController();
    this.#report({busy: true});
    let error = null;
    let rest = 0;
    try {
      const data = await this.#load(this.#abort.signal);
      rest = data?.rest ?? 0;
      this.#report({data, error: null, at: Date.now(), busy: false});
    } catch (caught) {
      error = caught;
      error.tried = Boolean(this.#every) && !final.includes(error.status); // again, by itself
      this.#report(isAborted(caught) ? {busy: false} : {error: caught, busy: false});
    }
    this.#abort = null;
    if (this.#stopped) return;
    this.#scheduleNext(error, rest);
    if (this.#again) {
      this.#again = false;
      this.runNow();
    }
  }

  #report(change) {
    if (this.#stopped) return;
    this.#setState((old) => ({...old, ...change}));
    const {slow, at, busy, error} = {...pollers.get(this), ...change}; // without the data
    pollers.set(this, {slow, at, busy, error});
    sumUp();
  }
}

// The view is as old as the oldest part of it.
function sumUp() {
  const states = [...pollers.values()];
  const fast = states.filter((one) => !one.slow);
  const times = (fast.length ? fast : states).map((one) => one.at).filter(Boolean);
  refreshState.set({
    at: times.length ? Math.min(...times) : 0,
    busy: states.some((one) => one.busy),
    failed: states.some((one) => one.error),
  });
}

// Values that several components share. A store has one value, and tells its listeners when it changes.
import {useEffect, useState} from "./html.js";

export function createStore(initial) {
  let value = initial;
  const listeners = new Set();
  return {
    get: () => value,
    set(next) {
      if (Object.is(next, value)) return;
      value = next;
      for (const listener of [...listeners]) listener(value);
    },
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

// The value of a store. The component renders again when it changes.
export function useStore(store) {
  const [value, setValue] = useState(() => store.get());
  useEffect(() => {
    // It may have changed between the first render and this effect.
    setValue(() => store.get());
    return store.subscribe((next) => setValue(() => next));
  }, [store]);
  return value;
}

// A store that the browser keeps. Only `allowed` values are taken: others may have changed what is kept.
export function createKeptStore(name, allowed, initial) {
  const key = `postbox-console.${name}`;
  const store = createStore(readKept(key, allowed, initial));
  store.subscribe((value) => writeKept(key, value));
  return store;
}

function readKept(key, allowed, initial) {
  try {
    const kept = JSON.parse(localStorage.getItem(key));
    return allowed.includes(kept) ? kept : initial;
  } catch {
    return initial; // Storage may be disabled or full of something else; the page works without it.
  }
}

function writeKept(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value));
  } catch {
    // The value then lasts as long as the page.
  }
}

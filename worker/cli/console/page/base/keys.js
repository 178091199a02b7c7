// Keys of the whole page. They do nothing while the user types, in a dialog, or with a modifier.
import {refreshNow} from "./refresh.js";
import {goTo} from "./route.js";

const timeOfSecondKey = 1500; // ms after "g"

// For the list that `?` shows.
export const keyTexts = [
  ["?", "this list"],
  ["r", "read the view now"],
  ["/", "go to the first filter of the view"],
  ["↑ ↓", "previous and next row of a table"],
  ["Enter", "open or close the details of a row"],
  ["Escape", "close a dialog"],
];

// `views` have `key` and `path`. Returns what removes the listener.
export function listenToKeys(views, showHelp) {
  let goUntil = 0;
  const actions = {
    "?": showHelp,
    r: refreshNow,
    "/": focusFilter,
    g: () => {
      goUntil = Date.now() + timeOfSecondKey;
    },
  };
  const listener = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || document.querySelector("dialog[open]")) return;
    const going = Date.now() < goUntil;
    goUntil = 0;
    const view = going && views.find((one) => one.key === event.key);
    if (!view && !actions[event.key] && !firstRow(event.key)) return;
    if (event.defaultPrevented) return;
    event.preventDefault();
    if (view) goTo(view.path);
    else if (actions[event.key]) actions[event.key]();
    else firstRow(event.key).focus();
  };
  addEventListener("keydown", listener);
  return () => removeEventListener("keydown", listener);
}

const isTyping = (target) => target.matches?.("input:not([type=checkbox]), select, textarea, [contenteditable]");

function focusFilter() {
  document.querySelector("main input:not([type=checkbox]), main select")?.focus();
}

// From outside a table, the arrow down leads into it.
function firstRow(key) {
  return key === "ArrowDown" && document.activeElement === document.body ? document.querySelector("main tr.row") : null;
}

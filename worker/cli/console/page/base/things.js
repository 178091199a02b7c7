// How states of the things of Postbox are shown: the kind decides the color, the word is that of the database.
import {State} from "./format.js";
import {html} from "./html.js";

const kinds = {
  publication: {active: "ok", waiting: "waiting", retrying: "failing", suspended: "failing", unserved: "failing", paused: "paused", broken: "failing"},
  worker: {running: "ok", starting: "waiting", unserved: "failing"},
  stream: {connected: "ok", connecting: "waiting", reconnecting: "failing", failed: "failing", paused: "paused"},
  backfill: {running: "ok", waiting: "waiting", stopped: "failing", paused: "paused", done: "idle", cancelled: "idle"},
  rebuild: {running: "ok", waiting: "waiting", stopped: "failing", failing: "failing", done: "idle", cancelled: "idle"},
  audit: {clean: "ok", incomplete: "waiting", differences: "failing"},
  lane: {held: "ok", free: "waiting", lost: "failing", "not begun": "idle"},
  finding: {ok: "ok", warning: "paused", error: "failing", "not checked": "idle"},
  provision: {create: "waiting", update: "waiting", refused: "failing", unsupported: "failing", unknown: "idle"},
};

export const kindOf = (thing, state) => kinds[thing]?.[state] ?? "idle";

export const StateOf = ({thing, state, title}) => (state ? html`<${State} kind=${kindOf(thing, state)} title=${title}>${state}</${State}>` : null);

// What marks the row of a table: only what needs a look.
export function rowKindOf(thing, state) {
  const kind = kindOf(thing, state);
  return kind === "failing" || kind === "paused" ? kind : "";
}

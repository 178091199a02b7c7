// What became of an event in an inbox: by colour and word, and what the word means.
import {State} from "./format.js";
import {html} from "./html.js";

const outcomes = {
  applied: ["ok", "It was applied."],
  duplicate: ["idle", "An event with this id was applied before. It had no effect."],
  stale: ["idle", "It is older than what is stored. It had no effect."],
  ignored: ["idle", "No projection and no handler takes its type. It had no effect."],
  rejected: ["failing", "It failed, and is a dead letter."],
  parked: ["failing", "Its key is parked: it is applied after the event that failed."],
  refused: ["failing", "The database refused this one."],
};

// The words that a filter can choose: of the last redrive, those without an effect.
export const outcomesWithoutEffect = ["stale", "ignored", "duplicate"];

export function Outcome({outcome, title}) {
  if (!outcome) return "–";
  const [kind, meaning] = outcomes[outcome] ?? ["waiting", ""];
  return html`<${State} kind=${kind} title=${title ?? meaning}>${outcome}</${State}>`;
}

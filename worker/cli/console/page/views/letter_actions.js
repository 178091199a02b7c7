// The buttons above the dead letters: for the selected ones, and for all that match the filters.
import {mayAct} from "../base/change.js";
import {AllDialog} from "../base/all_dialog.js";
import {showDialog} from "../base/dialog_host.js";
import {html} from "../base/html.js";
import {SelectedDialog} from "../base/selected_dialog.js";
import {plural} from "../base/words.js";
import {Explanation, nameOf} from "./letter_details.js";

// The filters of the list that an action on all does not know.
const onlyForList = {error: "the error text", from: "the time", to: "the time", parked: "parked"};

export function LetterActions({filter, selected, inboxes, count, onDone}) {
  const chosen = selected.size > 0;
  const place = filter.inbox ?? (inboxes.length === 1 ? inboxes[0].inbox : "");
  if (!inboxes.some(mayAct) && !chosen) return null;
  const reason = chosen ? "" : whyNotAll(filter, inboxes.find((one) => one.inbox === place), count);
  const open = (action) => (chosen ? openSelected(action, [...selected.values()], onDone) : openAll(action, {...filter, inbox: place}));
  const button = (action, title) => html`<button type="button" disabled=${Boolean(reason)} title=${reason} onClick=${() => open(action)}>
    ${title} ${chosen ? plural(selected.size, "selected letter") : "all that match"}</button>`;
  return html`${reason && html`<span class="muted why">${reason}</span>`}
    ${button("redrive", "Redrive")} ${button("discard", "Discard")}`;
}

const allTexts = {
  redrive: "Events are applied again, parked keys from their first event on. Left out are those whose last redrive had no effect, unless the filter selects them, " +
    "and those that cannot be redriven.",
  discard: "Dead letters are deleted for good. The inbox still remembers their events.",
};

const openAll = (action, filter) => showDialog(AllDialog, {action, filter, children: html`<p>${allTexts[action]}</p>`});

function openSelected(action, rows, onDone) {
  showDialog(SelectedDialog, {action, events: rows.map(nameOf), holes: rows.some((row) => row.parked), onDone, children: html`<${Explanation} action=${action} />`});
}

// Why there is no action on all; empty if there is one.
function whyNotAll(filter, inbox, count) {
  const unknown = Object.keys(onlyForList).find((name) => filter[name]);
  if (unknown) return `Actions on all that match cannot filter by ${onlyForList[unknown]}: select rows, or clear it.`;
  if (!inbox) return "Choose an inbox to act on all that match, or select rows.";
  if (!mayAct(inbox)) return "The role has no rights on this inbox.";
  return count && Number(count.count) === 0 ? "Nothing matches." : "";
}

// What can be done with a parked key: try it again from its first event on, or give up that event.
import {AllDialog} from "../base/all_dialog.js";
import {mayAct} from "../base/change.js";
import {showDialog} from "../base/dialog_host.js";
import {SelectField} from "../base/form.js";
import {html, useState} from "../base/html.js";
import {linkTo} from "../base/route.js";
import {SelectedDialog} from "../base/selected_dialog.js";
import {useOutboxes} from "./relations.js";

export function KeyActions({row}) {
  const open = (action) => showDialog(row.side === "inbox" ? InboxDialog : OutboxDialog, {row, action});
  return html`<div class="buttons">
    <a class="button" href=${linkTo("event", {id: row.event_id})}>Way of the first event</a>
    <button type="button" onClick=${() => open("discard")}>Discard the first event</button>
    <button type="button" class="primary" onClick=${() => open("redrive")}>Redrive the key</button>
  </div>`;
}

const nameOf = (row, id) => ({id, name: `${row.event_type ?? "event"} of ${row.aggregate_id}`});

function InboxDialog({row, action, onClose}) {
  if (action === "redrive") {
    return html`<${AllDialog} action="redrive" title=${`Redrive ${row.aggregate_id}`} filter=${{inbox: row.relation, key: row.aggregate_id}} onClose=${onClose}>
      <p>The events of the key are applied in their order, up to one that fails.</p></${AllDialog}>`;
  }
  return html`<${SelectedDialog} action="discard" events=${[nameOf(row, row.dead_letter)]} holes onClose=${onClose}>
    <p>The first event of the key is given up for good, and the later ones are applied without it.</p></${SelectedDialog}>`;
}

function OutboxDialog({row, action, onClose}) {
  return html`<${SelectedDialog} action=${action} outbox=${row.relation} events=${[nameOf(row, row.event_id)]} onClose=${onClose}>
    <p>${action === "redrive"
      ? "The first event of the key is sent again now, and the later ones after it."
      : "The first event of the key is never published, and the later ones are published without it."}</p></${SelectedDialog}>`;
}

// All parked keys of one outbox.
export function RedriveOutbox() {
  const outboxes = useOutboxes().filter(mayAct);
  if (!outboxes.length) return null;
  return html`<button type="button" onClick=${() => showDialog(OutboxesDialog, {outboxes})}>Redrive all of an outbox</button>`;
}

function OutboxesDialog({outboxes, onClose}) {
  const [outbox, choose] = useState(outboxes[0].outbox);
  return html`<${AllDialog} action="redrive" unit="key" title="Redrive all parked keys of an outbox" filter=${{outbox}} onClose=${onClose}>
    <p>The first event of each parked key is sent again now, and the later ones after it.</p>
    ${outboxes.length > 1 && html`<${SelectField} label="Outbox" options=${outboxes.map((one) => [one.outbox, one.outbox])} value=${outbox} onChange=${choose} />`}
  </${AllDialog}>`;
}

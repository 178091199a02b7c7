// One dead letter with all that is kept of it.
import {get} from "../base/api.js";
import {mayAct} from "../base/change.js";
import {showDialog} from "../base/dialog_host.js";
import {ErrorBar, Loading} from "../base/error_bar.js";
import {Age, Code, formatCount} from "../base/format.js";
import {html} from "../base/html.js";
import {compactJson} from "../base/json.js";
import {Attributes, Payload} from "../base/payload.js";
import {usePolled} from "../base/refresh.js";
import {linkTo} from "../base/route.js";
import {SelectedDialog} from "../base/selected_dialog.js";
import {Facts} from "../base/view.js";

export function LetterDetails({row}) {
  // What was tried again is read again; else a letter does not change.
  const {data, error, reload} = usePolled((signal) => get("dead-letter", {id: row.id}, signal), [row.id, row.failed_at, row.outcome], {once: true});
  if (error) return html`<${ErrorBar} error=${error} onRetry=${reload} />`;
  if (!data) return html`<${Loading} />`;
  return html`<div class="stack">
    ${data.error && html`<div><h3>Error <code class="sqlstate">${data.sqlstate}</code></h3><pre class="content failing">${data.error}</pre></div>`}
    <${Facts} facts=${factsOf(data)} />
    <${Attributes} attributes=${data.attributes} />
    ${data.raw && html`<p class="muted">The database cannot hold some fields as text, so this event cannot be redriven. Their bytes in hex:
      <code>${compactJson(data.raw)}</code></p>`}
    <${Payload} payload=${data} />
    <${Buttons} row=${row} />
  </div>`;
}

const factsOf = (letter) => [
  ["Event id", letter.event_id ? html`<a href=${linkTo("event", {id: letter.event_id})}><code>${letter.event_id}</code></a>` : "none: it cannot be redriven"],
  ["Inbox", html`<${Code}>${letter.inbox}</${Code}>`],
  ["Key", html`<a href=${linkTo("dead-letters", {inbox: letter.inbox, key: letter.aggregate_id})}><code>${letter.aggregate_id}</code></a>`],
  ["Aggregate type", html`<${Code}>${letter.aggregate_type}</${Code}>`],
  ["Version", formatCount(letter.version)],
  ["Emitted", html`<${Age} time=${letter.occurred_at} />`],
  ["Failed", html`<${Age} time=${letter.failed_at} />`],
  ["Attempts", formatCount(letter.attempts)],
];

function Buttons({row}) {
  if (!mayAct(row)) return null;
  const open = (action) => showDialog(SelectedDialog, {action, events: [nameOf(row)], holes: row.parked, children: html`<${Explanation} action=${action} />`});
  return html`<div class="buttons">
    <a class="button" href=${linkTo("event", {id: row.event_id})}>Way of the event</a>
    <button type="button" onClick=${() => open("redrive")}>Redrive</button>
    <button type="button" onClick=${() => open("discard")}>Discard</button>
  </div>`;
}

export const nameOf = (row) => ({id: row.id, name: `${row.event_type ?? "event"} of ${row.aggregate_id ?? "no key"}`});

export function Explanation({action}) {
  return action === "redrive"
    ? html`<p>An event is applied again. It leaves the dead letters if that works. Of a parked key only the first event can be redriven; the puller then goes on with the key.</p>`
    : html`<p>A dead letter is deleted for good. The inbox still remembers its event, so a redelivery has no effect.</p>`;
}

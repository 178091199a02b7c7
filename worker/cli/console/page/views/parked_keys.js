// Parked keys: keys whose first event failed, so that the later ones wait behind it. Those of inboxes and those of outboxes.
import {mayAct} from "../base/change.js";
import {Age, Code, formatCount, Long, none, State} from "../base/format.js";
import {html} from "../base/html.js";
import {List} from "../base/list_view.js";
import {linkTo, setParameters} from "../base/route.js";
import {ViewHead} from "../base/view.js";
import {KeyActions, RedriveOutbox} from "./key_actions.js";

const sides = {
  inbox: {title: "Inboxes", empty: ["No key of an inbox is parked", "A key is parked if one of its events cannot be applied, and its inbox parks keys (postbox.alter_inbox)."]},
  outbox: {title: "Outboxes", empty: ["No key of an outbox is parked", "A key is parked if Pub/Sub refuses one of its events. The other keys go on."]},
};

function NextRetry({row}) {
  if (!row.next_retry_at) return none;
  if (row.next_retry_at === "infinity") return html`<${State} kind="failing" title="All attempts are used up: redrive the key, or discard its first event.">not by itself</${State}>`;
  return html`<span class="nowrap"><${Age} time=${row.next_retry_at} /></span>`;
}

function FirstEvent({row}) {
  return html`<${Long} text=${row.event_type} class="short" />
    <a class="sub" href=${linkTo("event", {id: row.event_id})} title="The way of the event"><code>${row.event_id}</code></a>`;
}

const waitingOf = ({waiting}) => (Number(waiting) >= 1000 ? "1000+" : formatCount(waiting));

const columnsOf = (side) => [
  {id: "relation", title: side === "inbox" ? "Inbox" : "Outbox", render: (row) => html`<${Code}>${row.relation}</${Code}>`},
  {id: "key", title: "Key", render: (row) => html`<strong><${Code}>${row.aggregate_id}</${Code}></strong>`},
  {id: "event", title: "First event", render: (row) => html`<${FirstEvent} row=${row} />`},
  {id: "error", title: "Error", wide: true, render: (row) => html`<span class="failure">${row.sqlstate && html`<code class="sqlstate">${row.sqlstate}</code>`}<${Long} text=${row.error} /></span>`},
  {id: "attempts", title: side === "inbox" ? "Retries" : "Attempts", align: "end", narrow: false, render: (row) => formatCount(row.retries ?? row.attempts)},
  {id: "next", title: "Next retry", render: (row) => html`<${NextRetry} row=${row} />`},
  {id: "waiting", title: "Behind it", hint: "Later events of the key, which wait", align: "end", render: waitingOf},
  side === "inbox" && {id: "parked", title: "Parked", narrow: false, render: (row) => html`<span class="nowrap"><${Age} time=${row.parked_at} /></span>`},
].filter(Boolean);

function Details({row}) {
  return html`<div class="stack">
    <div><h3>Error</h3><pre class="content failing">${row.error ?? "none is stored"}</pre></div>
    <p class="muted">${row.side === "inbox"
      ? html`The later events of the key are dead letters, too: <a href=${linkTo("dead-letters", {inbox: row.relation, key: row.aggregate_id, parked: "true"})}>all letters of the key</a>.`
      : "The later events of the key wait in the outbox."} <a href=${linkTo("event", {key: row.aggregate_id})}>All events of the key</a></p>
    ${mayAct(row) && html`<${KeyActions} row=${row} />`}
  </div>`;
}

function ParkedKeys({parameters}) {
  const side = parameters.side === "outbox" ? "outbox" : "inbox";
  return html`<${ViewHead} title="Parked keys">
      ${side === "outbox" && html`<${RedriveOutbox} />`}
      <div class="tabs small-tabs" role="group" aria-label="Side">${Object.entries(sides).map(([name, {title}]) => html`<button key=${name} type="button"
        aria-pressed=${name === side} onClick=${() => setParameters({side: name})}>${title}</button>`)}</div>
    </${ViewHead}>
    <${List} key=${side} path="parked-keys" parameters=${{side}} caption=${`Parked keys of ${sides[side].title}`} columns=${columnsOf(side)}
      rowKey=${(row) => JSON.stringify([row.relation, row.aggregate_id])} details=${(row) => html`<${Details} row=${row} />`} empty=${sides[side].empty} />`;
}

export const view = {path: "parked-keys", title: "Parked keys", group: "Events", key: "k", Component: ParkedKeys};

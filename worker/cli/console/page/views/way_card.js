// One event with the steps of its way.
import {Age, formatCount, formatTime, none, State} from "../base/format.js";
import {html, useState} from "../base/html.js";
import {Outcome} from "../base/outcomes.js";
import {Attributes, Payload} from "../base/payload.js";
import {linkTo} from "../base/route.js";
import {plural} from "../base/words.js";

export function EventCard({event, open: initially}) {
  const [open, setOpen] = useState(initially);
  return html`<section class="panel event">
    <header class="event-head">
      <button type="button" class="expand" aria-expanded=${open} aria-label=${`Steps of ${event.id}`} onClick=${() => setOpen(!open)}><span aria-hidden="true">›</span></button>
      <h2>${event.type ?? "event without a type"}</h2>
      <span class="muted">${event.aggregate}</span> <a href=${linkTo("event", {key: event.key})} title="All events of the key"><code>${event.key ?? none}</code></a>
      ${event.version && html`<span class="muted">version ${formatCount(event.version)}</span>`}
      <span class="spring"></span>
      <a href=${linkTo("event", {id: event.id})}><code>${event.id}</code></a>
    </header>
    ${open && html`<ol class="way">${event.steps.map((step, place) => html`<${Step} key=${place} step=${step} />`)}</ol>
      <div class="stack">
        <${Attributes} attributes=${event.attributes} />
        ${traceOf(event) && html`<p><a href=${linkTo("event", {trace: traceOf(event)})}>All events of the trace</a></p>`}
        ${event.payload && html`<${Payload} payload=${event.payload} />`}
      </div>`}
  </section>`;
}

function Step({step}) {
  const Body = bodies[step.kind];
  return html`<li class=${`step step-${kindOf(step)}`}>
    <div class="step-time">${step.at ? html`<time title=${formatTime(Date.parse(step.at))}>${clockOf(step.at)}</time><span class="sub"><${Age} time=${step.at} /></span>` : none}</div>
    <div class="step-body"><${Body} step=${step} row=${step.row} /></div>
  </li>`;
}

// With milliseconds: the steps of one event are close to each other.
function clockOf(at) {
  const time = new Date(at);
  return `${formatTime(time).slice(0, 19)}.${String(time.getMilliseconds()).padStart(3, "0")}`;
}

const states = {published: "ok", pending: "waiting", parked: "failing", expired: "failing", discarded: "paused"};
const meanings = {
  published: "Pub/Sub has acknowledged it.",
  pending: "It waits for its turn, or is being sent.",
  parked: "Pub/Sub has refused it, and its key waits behind it; or it waits for an event of its key.",
  expired: "It was not published before it expired, and was given up.",
  discarded: "It was given up and never published.",
};

// The color of a step.
function kindOf({kind, row}) {
  if (kind === "outgoing") return states[row.state] ?? "waiting";
  if (kind === "incoming") return {applied: "ok", rejected: "failing", parked: "failing"}[row.outcome] ?? "idle";
  return {emitted: "ok", letter: "failing", discarded: "paused"}[kind];
}

const Emitted = ({step}) => html`<strong>Emitted</strong> into outbox <code>${step.place}</code>`;

function Outgoing({row}) {
  return html`<strong>Publication</strong> <a href=${linkTo("publications")}><code>${row.publication}</code></a> <span class="muted">to topic</span> <code>${row.topic}</code>
    <${State} kind=${states[row.state] ?? "waiting"} title=${meanings[row.state]}>${row.state}</${State}>
    ${row.attempts > 0 && html`<span class="sub">${plural(row.attempts, "attempt")}${row.next_retry_at && html`, next <${Retry} at=${row.next_retry_at} />`}</span>`}
    ${row.last_error && html`<pre class="content failing">${row.last_error}</pre>`}
    ${row.expired && html`<span class="sub">expired <${Age} time=${row.expired.expires_at} />${row.expired.last_of_aggregate ? "; it was the last event of its key" : ""}</span>`}`;
}

const Retry = ({at}) => (at === "infinity" ? "not by itself: redrive it" : html`<${Age} time=${at} />`);

function Incoming({row}) {
  return html`<strong>Received</strong> by inbox <code>${row.inbox}</code> <${Outcome} outcome=${row.outcome} />
    ${row.detail && html`<span class="sub">${row.detail}</span>`}`;
}

function Letter({row}) {
  return html`<strong>${row.parked ? "Parked" : "Dead letter"}</strong> of inbox <code>${row.inbox}</code>
    <${Outcome} outcome=${row.outcome ?? (row.parked ? "parked" : "rejected")} />
    <span class="sub">${plural(row.attempts, "attempt")}. <a href=${linkTo("dead-letters", {inbox: row.inbox, key: row.aggregate_id})}>Letters of the key</a></span>
    ${row.error && html`<pre class="content failing">${row.sqlstate} ${row.error}</pre>`}`;
}

function Discarded({row}) {
  return html`<strong>Discarded</strong> from inbox <code>${row.inbox}</code> by <code>${row.discarded_by}</code>
    ${row.hole && html` <${State} kind="failing" title="Its effect is missing, and later events of the key were applied without it.">hole</${State}>`}
    <span class="sub">${row.reason}</span>`;
}

// As the API looks for it: an attribute of its own, or a part of the W3C header.
function traceOf({attributes}) {
  const {trace_id: trace, traceparent} = attributes ?? {};
  return typeof trace === "string" ? trace : typeof traceparent === "string" ? traceparent.slice(3, 35) : "";
}

const bodies = {emitted: Emitted, outgoing: Outgoing, incoming: Incoming, letter: Letter, discarded: Discarded};

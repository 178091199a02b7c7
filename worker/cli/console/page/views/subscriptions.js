// Subscriptions with their pullers, and what each of them has in hand.
import {get, session} from "../base/api.js";
import {troublesOf} from "../base/attention.js";
import {bytesOfText} from "../base/bytes.js";
import {PauseButton, mayAct} from "../base/change.js";
import {Empty, ErrorBar, Loading} from "../base/error_bar.js";
import {Age, Long, Paused, State, formatCount, formatRate, formatSeconds, none} from "../base/format.js";
import {html, useState} from "../base/html.js";
import {Pager, rowsOfPage, usePages} from "../base/pager.js";
import {usePolled} from "../base/refresh.js";
import {SeekDialog} from "../base/seek.js";
import {Table, buttonsColumn} from "../base/table.js";
import {StateOf, rowKindOf} from "../base/things.js";
import {Facts, Texts, ViewHead} from "../base/view.js";

const columns = [
  {id: "name", title: "Subscription", render: (row) => html`<strong>${row.subscription}</strong><${Long} class="sub" text=${`${row.pubsub_subscription} → ${row.inbox}`} />`},
  {id: "state", title: "State", wide: true, render: stateOf},
  {id: "pullers", title: "Pullers", align: "end", narrow: false, render: (row) => formatCount(row.pullers)},
  {id: "hand", title: "In hand", align: "end", hint: "Received, and neither acknowledged nor given back", render: (row) => formatCount(row.in_hand)},
  {id: "rate", title: "Rate", align: "end", hint: "Messages that came per second, in the last minute", render: (row) => formatRate(row.events_per_second)},
  {id: "lag", title: "Lag", align: "end", hint: "How long before its arrival the oldest of the last messages was published", render: lagOf},
  buttonsColumn((row) => html`<${Buttons} row=${row} />`),
];

// With the time when a message came last that had been published more than 10 s before.
function lagOf(row) {
  return html`${formatSeconds(row.lag_seconds)}${row.behind_at && html`<span class="sub">behind <${Age} time=${row.behind_at} /></span>`}`;
}

function stateOf(row) {
  if (row.paused) return html`<${Paused} row=${row} />`;
  if (row.trouble) return html`<${State} kind="failing">${row.trouble.word}</${State}><${Long} class="sub" text=${row.trouble.detail} />`;
  return Number(row.pullers) ? html`<${State} kind="ok">pulling</${State}>` : html`<${State} kind="waiting" title="No puller that this role may see reports">no puller</${State}>`;
}

function Buttons({row}) {
  const [seek, setSeek] = useState(false);
  return html`<div class="row-buttons">
    <${PauseButton} kind="subscription" name=${row.subscription} row=${row} />
    ${mayAct(row) && html`<button type="button" class="small" aria-label=${`Seek subscription ${row.subscription}`} onClick=${() => setSeek(true)}>Seek …</button>`}
    ${seek && html`<${SeekDialog} subscription=${row.subscription} onClose=${() => setSeek(false)} />`}
  </div>`;
}

const mostPullers = 5; // pages of them

// What fails is known to pullers, so those of a page are read with it. Both lists have the order of the names of subscriptions.
async function pullersUpTo(last, next, signal) {
  const rows = [];
  let after = next?.after;
  for (let pages = 0; last !== undefined && pages < mostPullers; pages += 1) {
    const page = await get("pullers", {limit: 200, after}, signal);
    rows.push(...page.rows);
    if (!page.next || isBehind(page.rows.at(-1).subscription, last)) break;
    after = page.next.after;
  }
  return rows;
}

// In the order of the database, by bytes.
function isBehind(name, other) {
  const [one, two] = [bytesOfText(name), bytesOfText(other)];
  const place = one.findIndex((byte, index) => byte !== two[index]);
  return place >= 0 && (two[place] === undefined || one[place] > two[place]);
}

async function load(next, signal) {
  const page = await get("subscriptions", {limit: rowsOfPage, ...next}, signal);
  const pullers = await pullersUpTo(page.rows.at(-1)?.subscription, next, signal);
  const troubles = new Map(pullers.flatMap(troublesOf).map((one) => [one.name, one]));
  return {...page, rows: page.rows.map((row) => ({...row, trouble: troubles.get(row.subscription)}))};
}

const rowKind = (row) => (row.paused ? "paused" : row.trouble ? "failing" : "");

function Subscriptions() {
  const pages = usePages(load);
  return html`<${ViewHead} title="Subscriptions" />
    <${ErrorBar} error=${pages.error} onRetry=${pages.reload} />
    ${(pages.rows || !pages.error) && html`<${Table} caption="Subscriptions" columns=${columns} rows=${pages.rows} rowKey=${(row) => row.subscription} rowKind=${rowKind}
      details=${(row) => html`<${Pullers} subscription=${row.subscription} />`}
      empty=${html`<${Empty} title="There are no subscriptions"><code>postbox.create_subscription()</code> makes one: which Pub/Sub subscription feeds an inbox.</${Empty}>`} />`}
    <${Pager} pages=${pages} />`;
}

const pullerColumns = [
  {id: "name", title: "Puller", render: (row) => html`<strong>${row.puller}</strong><span class="sub nowrap">seen <${Age} time=${row.last_seen} /></span>`},
  {id: "stream", title: "Stream", render: (row) => html`<${StateOf} thing="stream" state=${row.stream} title=${row.stream_error} />`},
  {id: "hand", title: "In hand", align: "end", render: (row) => formatCount(row.in_hand)},
  {id: "oldest", title: "Oldest waiting", align: "end", render: (row) => html`<${Age} time=${row.oldest_waiting} />`},
  {id: "received", title: "Received", align: "end", hint: "Since it started, redeliveries included", render: (row) => formatCount(row.received)},
  {id: "applied", title: "Applied", align: "end", render: (row) => formatCount(row.applied)},
  {id: "parked", title: "Parked", align: "end", render: (row) => formatCount(row.parked)},
  {id: "letters", title: "Dead letters", align: "end", render: (row) => formatCount(row.dead_letters)},
  {id: "failures", title: "Failures", align: "end", hint: "Attempts that failed", render: (row) => formatCount(row.failures)},
  {id: "error", title: "Last error", wide: true, render: (row) => html`<${Long} text=${row.last_error} />${row.last_error && html`<span class="sub"><${Age} time=${row.last_error_at} /></span>`}`},
];

// The API pages pullers by subscription and name, so those of a subscription come first behind its name.
async function pullersOf(subscription, signal) {
  const page = await get("pullers", {limit: 200, after: subscription}, signal);
  return page.rows.filter((row) => row.subscription === subscription);
}

function Pullers({subscription}) {
  const {data, error, reload} = usePolled((signal) => pullersOf(subscription, signal), [subscription]);
  if (error) return html`<${ErrorBar} error=${error} onRetry=${reload} title="The pullers could not be read" />`;
  if (!data) return html`<${Loading} />`;
  return html`<h3>Pullers</h3><${Table} caption=${`Pullers of ${subscription}`} columns=${pullerColumns} rows=${data} rowKey=${(row) => row.puller}
    rowKind=${(row) => rowKindOf("stream", row.stream)} details=${(row) => html`<${PullerDetails} row=${row} />`}
    empty=${html`<${Empty} title="No puller reports">Start <code>postbox pull</code> for this database. ${session.get().role} sees pullers of its inboxes only, unless it is a member of pg_monitor or postbox_operator.</${Empty}>`} />`;
}

function PullerDetails({row}) {
  return html`<${Facts} facts=${[
      ["Started", html`<${Age} time=${row.started_at} />`],
      ["Stream", html`${row.stream} since <${Age} time=${row.stream_since} />${row.stream_error && `: ${row.stream_error}`}`],
      ["Duplicates", formatCount(row.duplicates), "Seen before, acknowledged again"],
      ["Stale", formatCount(row.stale), "Older than what was stored"],
      ["Given back", formatCount(row.nacked), "To Pub/Sub because of a failure"],
      ["Catches up", row.catch_up === null ? none : `${Number(row.catch_up).toFixed(2)} s per second`, "By how much the lag decreases"],
      row.retrying_since && ["Failing since", html`<${Age} time=${row.retrying_since} />`],
      row.next_try && ["Next attempt", html`<${Age} time=${row.next_try} />`],
      row.unanswered_since && ["Database does not answer since", html`<${Age} time=${row.unanswered_since} />`],
      row.suspended_types && ["Suspended types", html`<${Texts} texts=${row.suspended_types} />`],
      row.suspended_error && ["Why", row.suspended_error],
    ]} />
    <${Waiting} waiting=${row.waiting} />`;
}

const waitingColumns = [
  {id: "type", title: "Event type", render: ([type]) => html`<code>${type}</code>`},
  {id: "events", title: "Events", align: "end", render: ([, one]) => formatCount(one.events)},
  {id: "versions", title: "Versions of one key", align: "end", render: ([, one]) => formatCount(one.versions)},
  {id: "oldest", title: "Oldest", align: "end", render: ([, one]) => formatSeconds(one.oldest_ms / 1000)},
];

function Waiting({waiting}) {
  const rows = Object.entries(waiting ?? {});
  return rows.length ? html`<div class="section"><h3>In hand and not being applied</h3>
    <${Table} caption="Waiting events by type" columns=${waitingColumns} rows=${rows} rowKey=${([type]) => type} /></div>` : null;
}

export const view = {path: "subscriptions", title: "Subscriptions", group: "Consuming", key: "s", Component: Subscriptions};

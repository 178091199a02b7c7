// Publications: what waits, how fast it goes, what is wrong; with their lanes.
import {get} from "../base/api.js";
import {PauseButton} from "../base/change.js";
import {ErrorBar, Loading} from "../base/error_bar.js";
import {Age, Code, Long, formatCount, formatRate, formatSeconds, none} from "../base/format.js";
import {html} from "../base/html.js";
import {List} from "../base/list_view.js";
import {sqlText} from "../base/quote.js";
import {usePolled} from "../base/refresh.js";
import {linkTo} from "../base/route.js";
import {Table, buttonsColumn} from "../base/table.js";
import {StateOf, rowKindOf} from "../base/things.js";
import {Command, Facts, ViewHead} from "../base/view.js";

const columns = [
  {id: "name", title: "Publication", render: (row) => html`<strong>${row.publication}</strong><${Long} class="sub" text=${`${row.outbox} → ${row.topic}`} />`},
  {id: "state", title: "State", render: (row) => html`<${StateOf} thing="publication" state=${row.state} />${row.retry_at && html`<span class="sub">retry <${Age} time=${row.retry_at} /></span>`}`},
  {id: "pending", title: "Pending", align: "end", hint: "Not published yet: ready, parked and delayed", render: (row) => (row.pending === null ? html`<span title="This role may not read the outbox">${none}</span>` : formatCount(row.pending))},
  {id: "ready", title: "Ready", align: "end", narrow: false, hint: "Waits to be published. An estimate above 1000", render: (row) => formatCount(row.ready)},
  {id: "oldest", title: "Oldest ready", align: "end", hint: "How far publishing lags behind", render: (row) => formatSeconds(row.oldest_ready_seconds)},
  {id: "rate", title: "Rate", align: "end", hint: "Published events per second, in the last minute", render: (row) => formatRate(row.rate)},
  {id: "parked", title: "Parked", align: "end", hint: "Parked, or behind a parked event of their key", render: parked},
  {id: "error", title: "Last error", wide: true, narrow: false, render: (row) => html`<${Long} text=${row.paused ? row.paused_reason : row.last_error} class=${rowKindOf("publication", row.state)} />`},
  buttonsColumn((row) => html`<${PauseButton} kind="publication" name=${row.publication} row=${row} />`),
];

function parked(row) {
  return Number(row.parked) ? html`<a href=${linkTo("parked-keys", {side: "outbox"})}>${formatCount(row.parked)}</a>` : formatCount(row.parked);
}

const Publications = () => html`<${ViewHead} title="Publications" />
  <${List} path="publications" caption="Publications" columns=${columns} rowKey=${(row) => row.publication} rowKind=${(row) => rowKindOf("publication", row.state)}
    details=${(row) => html`<${Details} row=${row} />`}
    empty=${["There are no publications", html`<code>postbox.create_publication()</code> makes one: which events of an outbox go to which topic.`]} />`;

function Details({row}) {
  return html`<${Facts} facts=${[
      row.last_error && !row.paused && ["Last error", row.last_error],
      row.paused && ["Paused", html`${row.paused_reason || "no reason was given"}, ${row.paused_until === "infinity" ? "until it is resumed" : html`ends <${Age} time=${row.paused_until} />`}`],
      row.suspended_since && ["Failing since", html`<${Age} time=${row.suspended_since} />`],
      ["Oldest pending", formatSeconds(row.oldest_pending_seconds), "Without delayed events"],
      ["Delayed", formatCount(row.delayed), "They wait for their deliver_at"],
      ["Expired", formatCount(row.expired), "Not published because their expires_at was over"],
      ["To be sent again", formatCount(row.republishing), "Queued by postbox.republish and not sent yet"],
      ["Sent more than once", html`at most ${formatCount(row.sent_again_at_most)}${row.sent_again_at && html`, last <${Age} time=${row.sent_again_at} />`}`],
      row.position !== null && ["Position", html`<${Code}>${row.position}</${Code}>`, "The seq up to which every lane has read"],
    ]} />
    <${Lanes} publication=${row.publication} />
    <div class="section"><h3>Send events again</h3><p>A dry run counts the events of the last hour. Without <code>dry_run</code> they are queued.</p>
      <${Command}>${`SELECT * FROM postbox.republish(${sqlText(row.publication)}, "from" => now() - interval '1 hour', dry_run => true);`}</${Command}></div>`;
}

const laneColumns = [
  {id: "lane", title: "Lane", align: "end", render: (row) => row.lane},
  {id: "state", title: "State", render: (row) => html`<${StateOf} thing="lane" state=${row.state} />`},
  {id: "worker", title: "Worker", render: (row) => (row.pid === null ? none : html`${row.worker} <span class="muted">process ${row.pid}${row.worker_state && `, ${row.worker_state}`}</span>`)},
  {id: "seen", title: "Last report", align: "end", render: (row) => html`<${Age} time=${row.locked_at} />`},
  {id: "position", title: "Without a gap", align: "end", hint: "Every row of the outbox up to this seq is read. It follows the position late", render: (row) => html`<${Code}>${row.position}</${Code}>`},
  {id: "unread", title: "Position", align: "end", hint: "Every row above this seq is unread, but those read ahead", render: (row) => html`<${Code}>${row.unread_above}</${Code}>${row.ahead ? " reads ahead" : ""}`},
  {id: "again", title: "Sent again", align: "end", hint: "At most so many messages were sent more than once", render: (row) => formatCount(row.sent_again)},
];

// A publication has at most 64 lanes, so one page has them all.
function Lanes({publication}) {
  const {data, error, reload} = usePolled((signal) => get("lanes", {publication, limit: 64}, signal), [publication]);
  if (error) return html`<div class="section"><${ErrorBar} error=${error} onRetry=${reload} title="The lanes could not be read" /></div>`;
  if (!data) return html`<${Loading} />`;
  if (data.kind === "table") return html`<p class="section muted">A table has no lanes: all workers share its rows.</p>`;
  return html`<div class="section"><h3>Lanes</h3>
    <${Table} caption=${`Lanes of ${publication}`} columns=${laneColumns} rows=${data.rows} rowKey=${(row) => String(row.lane)} rowKind=${(row) => rowKindOf("lane", row.state)}
      empty=${html`<p class="muted">No worker has begun with this publication.</p>`} />
    ${data.workers_visible === false && html`<small>Workers are shown to members of pg_monitor and postbox_operator.</small>`}</div>`;
}

export const view = {path: "publications", title: "Publications", group: "Publishing", key: "p", Component: Publications};

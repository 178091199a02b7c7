// Long operations: backfills, rebuilds, events that are sent again, audits. A bar is shown only where the total is known.
import {ChangeButton, mayAct} from "../base/change.js";
import {Age, Long, Paused, formatCount, formatRate, formatSeconds, none} from "../base/format.js";
import {html} from "../base/html.js";
import {List} from "../base/list_view.js";
import {sqlText} from "../base/quote.js";
import {buttonsColumn} from "../base/table.js";
import {StateOf, rowKindOf} from "../base/things.js";
import {Command, Facts, Section, ViewHead} from "../base/view.js";

const isOver = (row) => row.state === "done" || row.state === "cancelled";

// `total` is an estimate, so more than that may be done before the end.
function Progress({done, total, ended}) {
  if (ended) return html`${formatCount(done)}`;
  if (!Number(total)) return html`${formatCount(done)} <span class="muted">of an unknown number</span>`;
  const part = Math.min(Number(done) / Number(total), 0.99);
  return html`<progress max="1" value=${part} aria-label=${`${Math.floor(part * 100)} %`}></progress>
    <span class="sub nowrap">${formatCount(done)} of about ${formatCount(total)} (${Math.floor(part * 100)} %)</span>`;
}

const timeLeft = (row) => (row.seconds_left_estimated === null ? none : `about ${formatSeconds(row.seconds_left_estimated)}`);

const LastError = ({row}) => html`<${Long} text=${row.last_error} class="failing" />${row.last_error && html`<span class="sub"><${Age} time=${row.last_error_at} /></span>`}`;

const backfills = {
  path: "backfills",
  caption: "Backfills",
  rowKey: (row) => row.backfill,
  rowKind: (row) => rowKindOf("backfill", row.state),
  columns: [
    {id: "name", title: "Backfill", render: (row) => html`<strong>${row.backfill}</strong><${Long} class="sub" text=${`${row.relation} → ${row.outbox}`} />`},
    {id: "state", title: "State", render: (row) => html`<${StateOf} thing="backfill" state=${row.state} /><span class="sub reason">${row.reason}</span>`},
    {id: "progress", title: "Rows", wide: true, render: (row) => html`<${Progress} done=${row.row_count} total=${row.rows_estimated} ended=${isOver(row)} />`},
    {id: "rate", title: "Rate", align: "end", render: (row) => (isOver(row) ? none : formatRate(row.rows_per_second))},
    {id: "left", title: "Time left", align: "end", render: timeLeft},
    buttonsColumn((row) => html`<${BackfillButtons} row=${row} />`),
  ],
  details: (row) => html`<${Facts} facts=${[
      ["Emits as", row.owner],
      ["Started", html`<${Age} time=${row.started_at} />`],
      ["Last chunk", html`<${Age} time=${row.updated_at} />`],
      row.ended_at && ["Ended", html`<${Age} time=${row.ended_at} />`],
      row.state === "paused" && ["Paused", html`<${Paused} row=${{...row, paused: true, paused_reason: row.reason}} />`],
      row.last_error && ["Last error", html`<${LastError} row=${row} />`],
    ]} />
    ${row.state === "stopped" && html`<div class="section"><h3>Go on</h3><p>No session runs it. Any session may; it goes on behind the last chunk:</p>
      <${Command}>${`CALL postbox.run_backfill(${sqlText(row.backfill)});`}</${Command}></div>`}`,
  empty: ["There are no backfills", "A backfill emits an event for each row of a table."],
};

function BackfillButtons({row}) {
  if (!mayAct(row) || isOver(row)) return null;
  const change = row.state === "paused" ? "resume" : "pause";
  return html`<div class="row-buttons">
    <${ChangeButton} action=${change} kind="backfill" name=${row.backfill} />
    <${ChangeButton} action="cancel" kind="backfill" name=${row.backfill}>It cannot be continued afterwards. What it has emitted stays.</${ChangeButton}>
  </div>`;
}

const rebuilds = {
  path: "rebuilds",
  caption: "Rebuilds",
  rowKey: (row) => row.projection,
  rowKind: (row) => rowKindOf("rebuild", row.state),
  columns: [
    {id: "name", title: "Rebuild", render: (row) => html`<strong>${row.projection}</strong><span class="sub">${row.target}</span>`},
    {id: "state", title: "State", render: (row) => html`<${StateOf} thing="rebuild" state=${row.state} /><span class="sub reason">${row.reason}</span>`},
    {id: "applied", title: "Applied", align: "end", hint: "How many events there are in all is not known", render: (row) => formatCount(row.applied)},
    {id: "lag", title: "Lag", align: "end", render: (row) => (row.caught_up ? "caught up" : formatSeconds(row.lag_seconds))},
    {id: "rate", title: "Rate", align: "end", render: (row) => (isOver(row) ? none : formatRate(row.events_per_second))},
    {id: "left", title: "Time left", align: "end", hint: "If the lag goes on to decrease as in the last minute", render: timeLeft},
    {id: "error", title: "Last error", wide: true, render: (row) => html`<${LastError} row=${row} />`},
    buttonsColumn((row) => html`<${RebuildButtons} row=${row} />`),
  ],
  details: (row) => html`<${Facts} facts=${[
    ["Events come from", row.source ?? none],
    ["Started", html`<${Age} time=${row.started_at} />`],
    row.ended_at && ["Ended", html`<${Age} time=${row.ended_at} />`],
    ["Received", formatCount(row.received)],
    ["Stale", formatCount(row.stale), "Older than what the shadow had"],
    ["Failures", formatCount(row.failures), "Attempts that failed"],
  ]} />`,
  empty: ["There are no rebuilds", "A rebuild applies the events of a projection once more, to a copy of its table that then replaces the rows."],
};

const outcomes = {
  done: "The rows were replaced",
  lagging: "Not finished: the rebuild is behind the target; wait until it has caught up",
  locked: "Not finished: other sessions hold locks on the target",
};

function RebuildButtons({row}) {
  if (!mayAct(row) || isOver(row)) return null;
  return html`<div class="row-buttons">
    <${ChangeButton} action="finish" kind="rebuild" name=${row.projection} label="Finish" outcome=${(answer) => outcomes[answer.result]}>
      The rows of the copy replace those of ${row.target} in one transaction. This may take minutes.</${ChangeButton}>
    <${ChangeButton} action="cancel" kind="rebuild" name=${row.projection}>The copy is dropped. ${row.target} stays as it is.</${ChangeButton}>
  </div>`;
}

const republishes = {
  path: "republishes",
  caption: "Events that are sent again",
  rowKey: (row) => row.publication,
  columns: [
    {id: "name", title: "Publication", wide: true, render: (row) => html`<strong>${row.publication}</strong><span class="sub">${row.outbox}</span>`},
    {id: "state", title: "State", render: (row) => html`<${StateOf} thing="publication" state=${row.state} />`},
    {id: "left", title: "Not sent yet", align: "end", hint: "At most 100000", render: (row) => formatCount(row.republishing)},
    buttonsColumn((row) => mayAct(row) && html`<${ChangeButton} action="cancel" kind="republish" name=${row.publication}
      outcome=${(answer) => `Taken back: ${formatCount(answer.affected)} events`}>Events that are not sent yet are taken back.</${ChangeButton}>`),
  ],
  empty: ["No events are being sent again", "postbox.republish() queues published events to be sent once more."],
};

const audits = {
  path: "audits",
  caption: "Audits",
  rowKey: (row) => `${row.subscription} ${row.source}`,
  rowKind: (row) => rowKindOf("audit", row.status),
  columns: [
    {id: "name", title: "Subscription", render: (row) => html`<strong>${row.subscription}</strong><span class="sub">${row.source}</span>`},
    {id: "state", title: "Result", render: (row) => html`<${StateOf} thing="audit" state=${row.status} />`},
    {id: "watermark", title: "Complete up to", align: "end", hint: "Nothing that occurred before is missing, rejected or parked", render: (row) => html`<${Age} time=${row.watermark} />`},
    {id: "checked", title: "Checked", align: "end", render: (row) => html`<${Age} time=${row.checked_at} />`},
    {id: "findings", title: "Differences", render: (row) => Object.entries(row.findings ?? {}).map(([kind, count]) => html`<div key=${kind} class="nowrap">${kind}: ${formatCount(count)}</div>`)},
    {id: "detail", title: "Detail", wide: true, render: (row) => html`<${Long} text=${row.detail} />`},
  ],
  empty: ["No audit was recorded", html`<code>postbox audit --record</code> compares what was emitted with what was applied, and stores the result.`],
};

const Operations = () => html`<${ViewHead} title="Long operations" />
  <${Section} title="Backfills"><${List} ...${backfills} /></${Section}>
  <${Section} title="Rebuilds"><${List} ...${rebuilds} /></${Section}>
  <${Section} title="Sent again"><${List} ...${republishes} /></${Section}>
  <${Section} title="Audits"><${List} ...${audits} /></${Section}>
  <${Section} title="Start one" hint="These run outside of the console, where their output is seen. Replace the names.">
    <div class="commands">${starts.map(([name, command]) => html`<div key=${name}><h3>${name}</h3><${Command}>${command}</${Command}></div>`)}</div>
  </${Section}>`;

const starts = [
  ["Backfill of a table", "SELECT postbox.create_backfill('NAME', 'SCHEMA.TABLE');\nCALL postbox.run_backfill('NAME');"],
  ["Rebuild of a projection from the past of its topic", 'postbox pull --dsn "host=HOST dbname=DATABASE" --rebuild PROJECTION --since 2026-01-31T00:00:00Z'],
  ["Send events of the last hour again", "SELECT * FROM postbox.republish('PUBLICATION', \"from\" => now() - interval '1 hour', dry_run => true);"],
  ["Audit", 'postbox audit --source "host=HOST dbname=DATABASE" --reader "host=HOST dbname=DATABASE" --record'],
];

export const view = {path: "operations", title: "Long operations", group: "Operations", key: "l", Component: Operations};

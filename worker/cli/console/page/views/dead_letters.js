// Dead letters: events that could not be applied. With filters, their content, and what can be done with them.
import {mayAct} from "../base/change.js";
import {Empty, ErrorBar} from "../base/error_bar.js";
import {FilterBar} from "../base/filter_bar.js";
import {Age, Code, formatCount, Long} from "../base/format.js";
import {html, useEffect, useState} from "../base/html.js";
import {Outcome, outcomesWithoutEffect} from "../base/outcomes.js";
import {Pager} from "../base/pager.js";
import {linkTo} from "../base/route.js";
import {Table} from "../base/table.js";
import {ViewHead} from "../base/view.js";
import {LetterActions} from "./letter_actions.js";
import {LetterDetails} from "./letter_details.js";
import {countText, ScanProgress, useLetterCount, useLetters} from "./letters_scan.js";
import {useInboxes} from "./relations.js";

const names = ["inbox", "event_type", "key", "sqlstate", "error", "from", "to", "parked", "outcome"];

const columns = [
  {id: "failed", title: "Failed", hint: "When it was tried last", render: (row) => html`<span class="nowrap"><${Age} time=${row.failed_at} /></span>`},
  {id: "type", title: "Event type", render: (row) => html`<${Long} text=${row.event_type} class="short" />`},
  {id: "key", title: "Key", render: (row) => html`<${Code}>${row.aggregate_id}</${Code}>`},
  {id: "version", title: "Version", align: "end", narrow: false, render: (row) => formatCount(row.version)},
  {id: "error", title: "Error", wide: true, render: (row) => html`<${Failure} row=${row} />`},
  {id: "attempts", title: "Attempts", align: "end", narrow: false, render: (row) => formatCount(row.attempts)},
  {id: "state", title: "State", hint: "Parked, or what the last redrive came to", render: (row) => html`<${Outcome} outcome=${row.parked ? "parked" : row.outcome ?? "rejected"} />`},
];

function Failure({row}) {
  if (!row.sqlstate && !row.error) return html`<span class="muted">not tried: it waits behind another event of its key</span>`;
  return html`<span class="failure"><code class="sqlstate">${row.sqlstate}</code> <${Long} text=${row.error} /></span>`;
}

function DeadLetters({parameters}) {
  const filter = filterOf(parameters);
  const key = JSON.stringify(filter);
  const pages = useLetters(toApi(filter));
  const count = useLetterCount(toApi(filter));
  const inboxes = useInboxes();
  const [selected, setSelected] = useState(() => new Map());
  useEffect(() => setSelected(new Map()), [key]); // What is no longer shown is not acted on.
  const rows = pages.rows ?? (pages.scan.rows.length ? pages.scan.rows : undefined);
  const select = (ids) => setSelected(new Map([...ids].map((id) => [id, selected.get(id) ?? rows.find((row) => row.id === id)])));
  const acts = rows?.some(mayAct);
  return html`<${ViewHead} title="Dead letters" count=${countText(count)}>
      <${LetterActions} filter=${filter} selected=${selected} inboxes=${inboxes} count=${count} onDone=${() => setSelected(new Map())} />
    </${ViewHead}>
    <${FilterBar} fields=${fieldsFor(inboxes)} parameters=${parameters}>
      ${Object.keys(filter).length > 0 && html`<a class="button clear" href=${linkTo("dead-letters")}>Clear</a>`}
    </${FilterBar}>
    <${ErrorBar} error=${pages.error} onRetry=${pages.reload} />
    <${ScanProgress} scan=${pages.scan} />
    ${(rows || !pages.error) && html`<${Table} caption="Dead letters" columns=${columns} rows=${rows} rowKey=${(row) => row.id}
      details=${(row) => html`<${LetterDetails} row=${row} />`} empty=${nothing(filter)}
      ...${acts ? {selected: new Set(selected.keys()), onSelect: select, selectable: mayAct} : {}} />`}
    <${Pager} pages=${pages} />`;
}

const filterOf = (parameters) => Object.fromEntries(names.filter((name) => parameters[name]).map((name) => [name, parameters[name]]));

// A time without a zone is one of the browser's.
function toApi(filter) {
  const result = {...filter};
  for (const name of ["from", "to"]) {
    const time = new Date(filter[name] ?? "");
    if (!Number.isNaN(time.valueOf())) result[name] = time.toISOString();
  }
  return result;
}

function fieldsFor(inboxes) {
  return [
    {name: "inbox", label: "Inbox", options: [["", "all"], ...inboxes.map((one) => [one.inbox, one.inbox])]},
    {name: "event_type", label: "Event type"},
    {name: "key", label: "Key"},
    {name: "sqlstate", label: "SQLSTATE"},
    {name: "error", label: "Error contains"},
    {name: "from", label: "Failed from", type: "datetime-local"},
    {name: "to", label: "Failed before", type: "datetime-local"},
    {name: "parked", label: "Parked", options: [["", "all"], ["true", "parked"], ["false", "not parked"]]},
    {name: "outcome", label: "Last redrive", options: [["", "any"], ...outcomesWithoutEffect.map((one) => [one, one])]},
  ];
}

function nothing(filter) {
  return Object.keys(filter).length
    ? html`<${Empty} title="No dead letter matches">Event type, key and SQLSTATE are compared as a whole. <a href=${linkTo("dead-letters")}>Clear the filters</a></${Empty}>`
    : html`<${Empty} title="There are no dead letters">Each event that arrived was applied, or had no effect.</${Empty}>`;
}

export const view = {path: "dead-letters", title: "Dead letters", group: "Events", key: "d", Component: DeadLetters};

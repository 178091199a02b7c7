// Projections: how far they lag, what suspends them, which fields never come.
import {PauseButton} from "../base/change.js";
import {Age, Long, Paused, State, formatCount, none} from "../base/format.js";
import {html} from "../base/html.js";
import {List} from "../base/list_view.js";
import {shellWord} from "../base/quote.js";
import {linkTo} from "../base/route.js";
import {buttonsColumn} from "../base/table.js";
import {Command, Texts, ViewHead} from "../base/view.js";

const columns = [
  {id: "name", title: "Projection", render: (row) => html`<strong>${row.projection}</strong><${Long} class="sub" text=${`${row.inbox} → ${row.target}`} />`},
  {id: "state", title: "State", render: stateOf},
  {id: "waiting", title: "Waiting", align: "end", hint: "Received by pullers and not being applied yet", render: (row) => formatCount(row.waiting)},
  {id: "versions", title: "Versions behind", align: "end", hint: "How many versions a row may lag behind what was received", render: (row) => formatCount(row.versions_waiting)},
  {id: "oldest", title: "Oldest waiting", align: "end", hint: "When the oldest of them was published", render: (row) => html`<${Age} time=${row.oldest_waiting} />`},
  {id: "types", title: "Event types", narrow: false, render: (row) => html`<${Texts} texts=${row.event_types} />`},
  {id: "missing", title: "Missing fields", wide: true, hint: "Fields that were in none of the last 100 events of a type", render: missing},
  buttonsColumn((row) => html`<${PauseButton} kind="projection" name=${row.projection} row=${row} />`),
];

function stateOf(row) {
  if (row.paused) return html`<${Paused} row=${row} />`;
  if (row.suspended_types) return html`<${State} kind="failing">suspended</${State}><span class="sub"><${Texts} texts=${row.suspended_types} /></span>`;
  return row.waiting === null ? html`<${State} kind="idle" title="No puller that this role may see reports">no puller</${State}>` : html`<${State} kind="ok">active</${State}>`;
}

function missing(row) {
  return row.missing_fields ? html`<${State} kind="paused">never come</${State}>${row.missing_fields.map((one) => html`<span key=${one} class="sub">${one}</span>`)}` : none;
}

// A rebuild reads from Pub/Sub for as long as it takes, so a process of its own runs it.
function Rebuild({projection, target}) {
  return html`<h3>Rebuild</h3>
    <p>This applies the events of ${target} once more, to a copy whose rows then replace those of the table. Its progress is in <a href=${linkTo("operations")}>Long operations</a>.</p>
    <${Command}>${`postbox pull --dsn "host=HOST dbname=DATABASE" --rebuild=${shellWord(projection)} --since 2026-01-31T00:00:00Z`}</${Command}>`;
}

const rowKind = (row) => (row.paused ? "paused" : row.suspended_types ? "failing" : "");

const Projections = () => html`<${ViewHead} title="Projections" />
  <${List} path="projections" details=${(row) => html`<${Rebuild} projection=${row.projection} target=${row.target} />`} caption="Projections" columns=${columns} rowKey=${(row) => row.projection} rowKind=${rowKind}
    empty=${["There are no projections", html`<code>postbox.create_projection()</code> makes one: it keeps a table up to date from events.`]} />`;

export const view = {path: "projections", title: "Projections", group: "Consuming", key: "j", Component: Projections};

// What was done through consoles: who, when, what, how many, and why.
import {Age, Code, formatCount, Long} from "../base/format.js";
import {html} from "../base/html.js";
import {compactJson} from "../base/json.js";
import {List} from "../base/list_view.js";
import {Facts, Pairs, ViewHead} from "../base/view.js";

const columns = [
  {id: "at", title: "When", render: (row) => html`<span class="nowrap"><${Age} time=${row.at} /></span>`},
  {id: "role", title: "Who", render: (row) => html`<strong>${row.role}</strong>`},
  {id: "action", title: "Action", render: (row) => row.action},
  {id: "subject", title: "Of what", render: (row) => html`<${Long} text=${row.subject} />`},
  {id: "affected", title: "How many", align: "end", render: (row) => formatCount(row.affected)},
  {id: "reason", title: "Reason", wide: true, render: (row) => html`<${Long} text=${row.reason} />`},
];

function Details({row}) {
  return html`<div class="stack">
    <${Facts} facts=${[["Time", html`<${Age} time=${row.at} />`], ["Role", html`<${Code}>${row.role}</${Code}>`], ["Number of the line", row.id]]} />
    ${row.reason && html`<div><h3>Reason</h3><pre class="content">${row.reason}</pre></div>`}
    ${row.filter && html`<${Filter} filter=${row.filter} />`}
  </div>`;
}

function Filter({filter}) {
  return html`<div><h3>Filter</h3><${Pairs} entries=${Object.entries(filter).map(([name, value]) => [name, compactJson(value)])} /></div>`;
}

const Actions = () => html`<${ViewHead} title="Actions" />
  <${List} path="actions" caption="Actions" columns=${columns} rowKey=${(row) => row.id} details=${(row) => html`<${Details} row=${row} />`}
    empty=${["No action is stored", "Each action through a console has a line here. A role sees its own; operators and members of pg_monitor see all."]} />`;

export const view = {path: "actions", title: "Actions", group: "Operations", key: "a", Component: Actions};

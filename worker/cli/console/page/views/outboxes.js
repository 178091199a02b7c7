// Outboxes, with what is wrong with their tables.
import {Long, State, formatCount, none} from "../base/format.js";
import {html} from "../base/html.js";
import {List} from "../base/list_view.js";
import {Facts, ViewHead} from "../base/view.js";

const columns = [
  {id: "name", title: "Outbox", render: (row) => html`<strong>${row.outbox}</strong>`},
  {id: "kind", title: "Kind", render: (row) => row.kind},
  {id: "retention", title: "Retention", hint: "How long published events are kept", render: (row) => row.retention ?? "forever"},
  {id: "publications", title: "Publications", align: "end", render: (row) => formatCount(row.publications)},
  {id: "state", title: "State", render: (row) => html`<${State} kind=${row.problem ? "failing" : "ok"}>${row.problem ? "problem" : "ok"}</${State}>`},
  {id: "problem", title: "Problem", wide: true, render: (row) => html`<${Long} text=${row.problem} />`},
];

const Outboxes = () => html`<${ViewHead} title="Outboxes" />
  <${List} path="outboxes" caption="Outboxes" columns=${columns} rowKey=${(row) => row.outbox} rowKind=${(row) => (row.problem ? "failing" : "")}
    details=${(row) => html`<${Facts} facts=${[["Problem", row.problem ?? none], ["Remedy", row.remedy ?? none]]} />`}
    empty=${["There are no outboxes", html`<code>postbox.create_outbox()</code> makes one: the table that events are emitted into.`]} />`;

export const view = {path: "outboxes", title: "Outboxes", group: "Publishing", key: "x", Component: Outboxes};

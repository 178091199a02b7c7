// Inboxes, with what is wrong with them, their projections and their handlers.
import {State, none} from "../base/format.js";
import {html} from "../base/html.js";
import {List} from "../base/list_view.js";
import {linkTo} from "../base/route.js";
import {ViewHead} from "../base/view.js";

const columns = [
  {id: "name", title: "Inbox", render: (row) => html`<strong>${row.inbox}</strong>`},
  {id: "retention", title: "Retention", hint: "How long an event that comes again is recognized", render: (row) => row.retention ?? "forever"},
  {id: "state", title: "State", render: (row) => html`<${State} kind=${row.problems ? "failing" : "ok"}>${row.problems ? "problem" : "ok"}</${State}>`},
  {id: "problem", title: "Problems", wide: true, render: (row) => row.problems?.map((one) => html`<div key=${one}>${one}</div>`) ?? none},
  {id: "letters", title: "", align: "end", render: (row) => html`<a href=${linkTo("dead-letters", {inbox: row.inbox})}>dead letters</a>`},
];

const Inboxes = () => html`<${ViewHead} title="Inboxes" />
  <${List} path="inboxes" caption="Inboxes" columns=${columns} rowKey=${(row) => row.inbox} rowKind=${(row) => (row.problems ? "failing" : "")}
    empty=${["There are no inboxes", html`<code>postbox.create_inbox()</code> makes one: it applies each event once.`]} />`;

export const view = {path: "inboxes", title: "Inboxes", group: "Consuming", key: "i", Component: Inboxes};

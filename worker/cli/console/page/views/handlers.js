// Handlers: functions that are called with events.
import {PauseButton} from "../base/change.js";
import {Paused, State} from "../base/format.js";
import {html} from "../base/html.js";
import {List} from "../base/list_view.js";
import {buttonsColumn} from "../base/table.js";
import {Texts, ViewHead} from "../base/view.js";

const columns = [
  {id: "name", title: "Handler", render: (row) => html`<strong>${row.handler}</strong><span class="sub">${row.inbox}</span>`},
  {id: "state", title: "State", render: (row) => (row.paused ? html`<${Paused} row=${row} />` : html`<${State} kind="ok">active</${State}>`)},
  {id: "types", title: "Event types", wide: true, render: (row) => html`<${Texts} texts=${row.event_types} />`},
  buttonsColumn((row) => html`<${PauseButton} kind="handler" name=${row.handler} row=${row} />`),
];

const Handlers = () => html`<${ViewHead} title="Handlers" />
  <${List} path="handlers" caption="Handlers" columns=${columns} rowKey=${(row) => row.handler} rowKind=${(row) => (row.paused ? "paused" : "")}
    empty=${["There are no handlers", html`<code>postbox.create_handler()</code> makes one: a function that is called with each event of some types.`]} />`;

export const view = {path: "handlers", title: "Handlers", group: "Consuming", key: "h", Component: Handlers};

// Publisher workers of the whole server.
import {Age, none} from "../base/format.js";
import {html} from "../base/html.js";
import {List} from "../base/list_view.js";
import {StateOf, rowKindOf} from "../base/things.js";
import {ViewHead} from "../base/view.js";

const columns = [
  {id: "database", title: "Database", render: (row) => html`<strong>${row.database}</strong>`},
  {id: "number", title: "Worker", align: "end", render: (row) => row.ordinal ?? none},
  {id: "state", title: "State", render: (row) => html`<${StateOf} thing="worker" state=${row.state} />`},
  {id: "pid", title: "Process", align: "end", render: (row) => row.pid ?? none},
  {id: "started", title: "Started", align: "end", render: (row) => html`<${Age} time=${row.started_at} />`},
  {id: "remark", title: "", wide: true, render: (row) => row.state === "unserved" && html`<span class="muted">There is no slot for a worker of this database: raise postbox.max_workers or max_worker_processes.</span>`},
];

const Workers = () => html`<${ViewHead} title="Workers" />
  <${List} path="workers" caption="Workers" columns=${columns} rowKey=${(row) => `${row.database} ${row.ordinal}`} rowKind=${(row) => rowKindOf("worker", row.state)}
    empty=${["There are no workers", "Workers publish what outboxes have. They run if postbox is in shared_preload_libraries, on a primary, in each database with a publication."]} />`;

export const view = {path: "workers", title: "Workers", group: "Publishing", key: "w", needs: "workers", Component: Workers};

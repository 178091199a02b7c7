// What postbox.doctor() finds, with what to do.
import {get} from "../base/api.js";
import {Empty, ErrorBar} from "../base/error_bar.js";
import {CheckField} from "../base/form.js";
import {Code, none} from "../base/format.js";
import {html, useState} from "../base/html.js";
import {usePolled} from "../base/refresh.js";
import {Table} from "../base/table.js";
import {StateOf, rowKindOf} from "../base/things.js";
import {ViewHead} from "../base/view.js";

const columns = [
  {id: "status", title: "Status", render: (row) => html`<${StateOf} thing="finding" state=${row.status} />`},
  {id: "check", title: "Check", render: (row) => html`<${Code}>${row.check}</${Code}>`},
  {id: "subject", title: "Subject", render: (row) => row.subject ?? none},
  {id: "detail", title: "What was found", wide: true, render: (row) => html`<div class="prose">${row.detail}</div>${row.remedy && html`<div class="prose remedy"><strong>Remedy:</strong> ${row.remedy}</div>`}`},
];

function Findings() {
  const [all, setAll] = useState(false);
  const {data, error, reload} = usePolled((signal) => get("findings", {}, signal));
  const rows = data?.rows.filter((row) => all || row.status !== "ok");
  const well = data?.rows.filter((row) => row.status === "ok").length;
  return html`<${ViewHead} title="Findings" count=${rows && rows.length}>
      <${CheckField} label=${`Show also what is ok${data ? ` (${well})` : ""}`} value=${all} onChange=${setAll} />
    </${ViewHead}>
    <${ErrorBar} error=${error} onRetry=${reload} />
    ${(rows || !error) && html`<${Table} caption="Findings" columns=${columns} rows=${rows} rowKey=${(row) => `${row.check} ${row.subject} ${row.detail}`}
      rowKind=${(row) => rowKindOf("finding", row.status)}
      empty=${html`<${Empty} title="Nothing is wrong">postbox.doctor() has made ${well} checks. <code>postbox doctor</code> on the command line makes more: of Pub/Sub, and of the connection to it.</${Empty}>`} />`}`;
}

export const view = {path: "findings", title: "Findings", group: "", key: "f", Component: Findings};

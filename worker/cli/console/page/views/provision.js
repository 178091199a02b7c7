// How Pub/Sub differs from what is wanted there.
import {get} from "../base/api.js";
import {Empty, ErrorBar, Loading} from "../base/error_bar.js";
import {Age} from "../base/format.js";
import {html} from "../base/html.js";
import {usePolled} from "../base/refresh.js";
import {Table} from "../base/table.js";
import {StateOf, rowKindOf} from "../base/things.js";
import {Command, ViewHead} from "../base/view.js";

const columns = [
  {id: "kind", title: "Needs", render: (row) => html`<${StateOf} thing="provision" state=${row.kind} />`},
  {id: "resource", title: "Resource", render: (row) => row.resource},
  {id: "name", title: "Name", render: (row) => html`<${Name} name=${row.name} />`},
  {id: "difference", title: "Difference", wide: true, render: (row) => html`<div class="prose">${row.difference}</div>`},
];
const remedy = {id: "remedy", title: "Remedy", wide: true, render: (row) => html`<div class="prose">${row.remedy}</div>`};

// The end of projects/PROJECT/topics/ID tells resources apart.
function Name({name}) {
  const [, place, id] = name.match(/^(projects\/[^/]+)\/[^/]+\/(.+)$/s) ?? [null, "", name];
  return html`<code title=${name}>${id}</code><span class="sub">${place}</span>`;
}

const from = {file: "the file of --provision-file", database: "the publications and subscriptions of the database"};

function Provision() {
  const {data, error, reload} = usePolled((signal) => get("provision", {}, signal), [], {atLeast: 30});
  return html`<${ViewHead} title="Provision" count=${data?.configured ? data.rows.length : undefined}>
      ${data?.read_at && html`<span class="muted">Compared with ${from[data.source] ?? data.source} <${Age} time=${data.read_at} /></span>`}
    </${ViewHead}>
    <${ErrorBar} error=${error} onRetry=${reload} />
    ${data ? html`<${Result} result=${data} />` : !error && html`<${Loading} />`}`;
}

function Result({result: {configured, problem, rows}}) {
  if (!configured) return html`<${NotConfigured} problem=${problem} />`;
  if (problem) return html`<div class="bar bar-warning" role="status"><strong>Not compared:</strong> <span class="bar-text">${problem}</span></div>`;
  // Often one command repairs all.
  const remedies = [...new Set(rows.map((row) => row.remedy).filter(Boolean))];
  return html`${remedies.length === 1 && html`<div class="bar bar-note"><strong>Remedy:</strong> <span class="bar-text">${remedies[0]}</span></div>`}
    <${Table} caption="Differences" columns=${remedies.length > 1 ? [...columns, remedy] : columns} rows=${rows}
      rowKey=${(row) => `${row.kind} ${row.resource} ${row.name} ${row.difference}`} rowKind=${(row) => rowKindOf("provision", row.kind)}
      empty=${html`<${Empty} title="Pub/Sub is as it should be">Topics, subscriptions and their settings do not differ.</${Empty}>`} />`;
}

function NotConfigured({problem}) {
  return html`<${Empty} title="Pub/Sub is not compared">${problem}
    <div class="section">The same comparison on the command line: <${Command}>postbox provision --file FILE --dry-run</${Command}></div></${Empty}>`;
}

export const view = {path: "provision", title: "Provision", group: "Operations", key: "v", needs: "provision", Component: Provision};

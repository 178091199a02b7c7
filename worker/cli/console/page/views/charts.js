// The last hours, as the console has sampled them.
import {get} from "../base/api.js";
import {Chart} from "../base/chart.js";
import {Empty, ErrorBar, Loading} from "../base/error_bar.js";
import {formatCount, formatRate, formatSeconds, none} from "../base/format.js";
import {html, useMemo} from "../base/html.js";
import {usePolled} from "../base/refresh.js";
import {setParameters} from "../base/route.js";
import {ViewHead} from "../base/view.js";

const ranges = [["900", "15 min"], ["3600", "1 h"], ["21600", "6 h"]];
const whole = (value) => (value === null || value === undefined ? none : formatCount(Math.round(value)));

// How values are written, and which steps an axis has.
const decimal = [1, 2, 5].flatMap((one) => Array.from({length: 16}, (_, power) => one * 10 ** (power - 3))).sort((a, b) => a - b);
const rate = {format: formatRate, increments: decimal, least: 0.1};
const number = {format: whole, increments: decimal.filter((one) => one >= 1), least: 4};
const seconds = {format: formatSeconds, increments: [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400, 172800, 604800, 2592000], least: 4};

// In this order. A chart has one name and, if the same name is there for several kinds of things, one kind.
const charts = [
  {name: "published", kind: "publication", title: "Published", ...rate},
  {name: "errors", kind: "publication", title: "Requests to publish that failed", ...rate},
  {name: "oldest_ready", kind: "publication", title: "Oldest ready event", ...seconds},
  {name: "pending", kind: "publication", title: "Pending events", ...number},
  {name: "received", kind: "subscription", title: "Received messages", ...rate},
  {name: "oldest_waiting", kind: "subscription", title: "Oldest waiting message", ...seconds},
  {name: "applied", kind: "inbox", title: "Applied events", ...rate},
  {name: "rejected", kind: "inbox", title: "Rejected or parked events", ...rate},
  {name: "dead_letters", kind: "inbox", title: "Dead letters", ...number},
  {name: "parked_keys", kind: "publication", title: "Parked keys of publications", ...number},
  {name: "parked_keys", kind: "inbox", title: "Parked keys of inboxes", ...number},
];

function Charts({parameters}) {
  const range = ranges.some(([value]) => value === parameters.range) ? parameters.range : "3600";
  const {data, error, reload} = usePolled((signal) => get("charts", {range}, signal), [range]);
  return html`<${ViewHead} title="Charts">
      <div class="tabs" role="group" aria-label="Range">${ranges.map(([value, text]) => html`<button type="button" key=${value} aria-pressed=${value === range}
        onClick=${() => setParameters({range: value})}>${text}</button>`)}</div>
    </${ViewHead}>
    <${ErrorBar} error=${error} onRetry=${reload} />
    ${data?.problem && html`<div class="bar bar-warning" role="status"><strong>No samples:</strong> <span class="bar-text">${data.problem}</span></div>`}
    ${data ? html`<${Grid} charts=${data} range=${Number(range)} />` : !error && html`<${Loading} />`}`;
}

function Grid({charts: {times, series}, range}) {
  const shown = useMemo(() => charts.map((chart) => ({...chart, series: linesOf(series, chart)})).filter((chart) => chart.series.length), [series]);
  if (!shown.length) return html`<${Empty} title="There are no samples yet">The console takes one every 15 s while it runs, and keeps them for 6 hours.</${Empty}>`;
  return html`<div class="charts">${shown.map((chart) => html`<${Chart} key=${`${chart.name} ${chart.kind}`} times=${times} range=${range} ...${chart} />`)}</div>`;
}

// What sums up the rest comes last.
function linesOf(series, {name, kind}) {
  return series.filter((one) => one.name === name && one.kind === kind)
    .sort((a, b) => Boolean(a.others) - Boolean(b.others) || (a.object < b.object ? -1 : 1))
    .map((one) => ({name: one.others ? "others" : one.object, values: one.values}));
}

export const view = {path: "charts", title: "Charts", group: "", key: "c", needs: "metrics", Component: Charts};

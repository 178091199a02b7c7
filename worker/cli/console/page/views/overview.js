// How the database does, with what is wrong first.
import {get} from "../base/api.js";
import {attentionOf} from "../base/attention.js";
import {Empty, ErrorBar, Loading} from "../base/error_bar.js";
import {Age, Long, State, formatBounded, formatCount, formatSeconds} from "../base/format.js";
import {html} from "../base/html.js";
import {usePolled} from "../base/refresh.js";
import {linkTo} from "../base/route.js";
import {StateOf} from "../base/things.js";
import {Section, ViewHead} from "../base/view.js";

const lists = ["publications", "subscriptions", "pullers", "projections", "handlers", "backfills", "rebuilds"];
const rowsOfList = 200; // the most that the API gives at once

async function readAll(signal) {
  const overview = await get("overview", {}, signal);
  const rows = {};
  let more = false;
  for (const list of lists) {
    const page = await get(list, {limit: rowsOfList}, signal);
    rows[list] = page.rows;
    more ||= Boolean(page.next);
  }
  return {overview, rows, more};
}

function Overview() {
  const {data, error, reload} = usePolled(readAll);
  // The doctor looks at much, so not at each refresh.
  const doctor = usePolled((signal) => get("findings", {}, signal), [], {atLeast: 30});
  return html`<${ViewHead} title="Overview">${data && html`<${About} overview=${data.overview} />`}</${ViewHead}>
    <${ErrorBar} error=${error} onRetry=${reload} />
    <${ErrorBar} error=${doctor.error} onRetry=${doctor.reload} title="The findings could not be read" />
    ${data ? html`<${Counts} overview=${data.overview} />
      <${Attention} rows=${{...data.rows, findings: doctor.data?.rows}} more=${data.more} checking=${!doctor.data && !doctor.error} />` : !error && html`<${Loading} />`}`;
}

function About({overview}) {
  return html`<span class="muted">${overview.database}, version ${overview.version}</span>
    ${overview.standby && html`<${State} kind="waiting" title="It shows what the primary has sent">standby</${State}>
      <span class="muted">as of <${Age} time=${overview.known_until} /></span>`}`;
}

function Counts({overview}) {
  const bound = overview.counted_to;
  const keys = Number(overview.parked_keys_of_inboxes);
  const letters = Number(overview.dead_letters);
  return html`<div class="tiles">
    <a class="tile" href=${linkTo("publications")}><span>Pending events</span><strong>${formatCount(overview.pending)}</strong></a>
    <a class="tile" href=${linkTo("publications")}><span>Oldest ready</span><strong>${formatSeconds(overview.oldest_ready_seconds)}</strong></a>
    <a class="tile" href=${linkTo("subscriptions")}><span>In hand</span><strong>${formatCount(overview.in_hand)}</strong></a>
    <a class="tile" href=${linkTo("parked-keys")}><span>Parked (inboxes)</span><strong class=${keys ? "failing" : ""}>${formatBounded(keys, bound)}</strong></a>
    <a class="tile" href=${linkTo("dead-letters")}><span>Dead letters</span><strong class=${letters ? "failing" : ""}>${formatBounded(letters, bound)}</strong></a>
    <a class="tile tile-states" href=${linkTo("publications")}><span>Publications</span><${ByState} counts=${overview.publications} /></a>
  </div>`;
}

function ByState({counts}) {
  const states = Object.entries(counts);
  if (!states.length) return html`<strong>0</strong>`;
  return html`<span class="states">${states.map(([state, count]) => html`<span key=${state}>${count} <${StateOf} thing="publication" state=${state} /></span>`)}</span>`;
}

function Attention({rows, more, checking}) {
  const found = attentionOf(rows);
  return html`<${Section} title=${found.length ? `Needs a look (${found.length})` : "Needs a look"}>
    ${found.length
      ? html`<ul class="attention">${found.map((one) => html`<${Line} key=${one.key} ...${one} />`)}</ul>`
      : html`<${Empty} title=${checking ? "Checking …" : "Nothing"}>${!checking && "Nothing fails and nothing is paused, as far as this role may see."}</${Empty}>`}
    ${more && html`<p class="muted">Some lists have more than ${rowsOfList} rows; the rest is not looked at here.</p>`}
  </${Section}>`;
}

function Line({kind, word, title, detail, remedy, path}) {
  return html`<li class=${`attention-${kind}`}><${State} kind=${kind}>${word}</${State}>
    <a href=${linkTo(path)}>${title}</a><span class="attention-text"><${Long} text=${detail} />${remedy && html`<${Long} class="muted" text=${`Remedy: ${remedy}`} />`}</span></li>`;
}

export const view = {path: "overview", title: "Overview", group: "", key: "o", Component: Overview};

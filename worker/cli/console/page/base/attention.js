// What needs a look, from the lists of the API: the failing first, then what is paused, then warnings.
import {kindOf} from "./things.js";

const order = {failing: 0, paused: 1, waiting: 2};

// The checks of the doctor that look at things of these lists.
const checks = {publications: "publication", subscriptions: "subscription", backfills: "backfill", rebuilds: "rebuild"};

// Each is {kind, word, title, detail, path, key}. Lists that the role may not read are missing.
export function attentionOf({findings, ...lists}) {
  const found = ofLists(lists);
  const rest = (findings ?? []).filter((row) => !completes(row, found)).flatMap(ofFinding);
  return [...found, ...rest].sort((a, b) => order[a.kind] - order[b.kind]);
}

// The lists are newer than the findings. A finding on the same thing adds its remedy, not a second line.
function completes(finding, found) {
  const same = checks[finding.check] && found.find((one) => one.thing === checks[finding.check] && one.name === finding.subject);
  if (!same) return false;
  same.remedy ??= finding.remedy;
  return true;
}

function ofLists({publications, subscriptions, pullers, projections, handlers, backfills, rebuilds}) {
  return [
    ...(publications ?? []).flatMap(ofPublication),
    ...(pullers ?? []).flatMap(troublesOf),
    ...(subscriptions ?? []).flatMap((row) => ofPaused(row, "subscription", "subscriptions")),
    ...(projections ?? []).flatMap(ofProjection),
    ...(handlers ?? []).flatMap((row) => ofPaused(row, "handler", "handlers")),
    ...(backfills ?? []).flatMap((row) => ofOperation(row, "backfill")),
    ...(rebuilds ?? []).flatMap((row) => ofOperation(row, "rebuild", "projection")),
  ];
}

function ofFinding(row) {
  if (row.status === "ok" || row.status === "not checked") return [];
  return [{kind: kindOf("finding", row.status), word: row.status, title: row.subject ?? row.check, detail: row.detail, remedy: row.remedy, path: "findings",
    key: `finding ${row.check} ${row.subject} ${row.detail}`}];
}

function ofPublication(row) {
  const kind = kindOf("publication", row.state);
  if (kind === "ok" || kind === "idle") return [];
  return [{kind, word: row.state, title: `publication ${row.publication}`, detail: row.last_error, path: "publications", key: `publication ${row.publication}`, thing: "publication",
    name: row.publication}];
}

// Of a row of pullers: {word, detail, name, ...}, where `name` is the subscription.
export function troublesOf(row) {
  const key = `puller ${row.subscription} ${row.puller}`;
  const title = `puller of ${row.subscription}`;
  const line = (word, detail) => [{kind: "failing", word, title, detail, path: "subscriptions", key, thing: "subscription", name: row.subscription}];
  if (kindOf("stream", row.stream) === "failing") return line(row.stream, row.stream_error);
  if (row.suspended_types) return line("suspended", `${row.suspended_types.join(", ")}: ${row.suspended_error}`);
  if (row.retrying_since) return line("retrying", row.last_error);
  return [];
}

function ofProjection(row) {
  const found = ofPaused(row, "projection", "projections");
  if (row.suspended_types) {
    found.push({kind: "failing", word: "suspended", title: `projection ${row.projection}`, detail: row.suspended_types.join(", "), path: "projections",
      key: `suspended ${row.projection}`});
  }
  return found;
}

function ofPaused(row, thing, path) {
  if (!row.paused) return [];
  return [{kind: "paused", word: "paused", title: `${thing} ${row[thing]}`, detail: row.paused_reason, path, key: `${thing} ${row[thing]}`}];
}

function ofOperation(row, thing, name = thing) {
  const kind = kindOf(thing, row.state);
  if (kind !== "failing" && kind !== "paused") return [];
  return [{kind, word: row.state, title: `${thing} ${row[name]}`, detail: row.last_error ?? row.reason, path: "operations", key: `${thing} ${row[name]}`, thing,
    name: row[name]}];
}

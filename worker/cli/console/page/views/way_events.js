// The answer of the API, which is a list for each place, as one list of events with their steps in order.

// The newest event first. An event is {id, type, aggregate, key, version, time, payloads, attributes, steps}.
export function gather(way) {
  const events = new Map();
  for (const row of way.outgoing) addOutgoing(eventOf(events, row), row);
  for (const row of way.incoming) addIncoming(eventOf(events, row), row);
  for (const row of way.dead_letters) addLetter(eventOf(events, row), row);
  for (const row of way.discarded) addDiscarded(eventOf(events, row), row);
  const list = [...events.values()];
  for (const event of list) finish(event);
  return list.sort((one, other) => other.time - one.time);
}

// Ids of uuids may be written in two ways. Dead letters may have none.
function eventOf(events, row) {
  const id = row.event_id ? row.event_id.toLowerCase() : `letter ${row.id}`;
  if (!events.has(id)) events.set(id, {id, type: null, aggregate: null, key: null, version: null, payload: null, attributes: null, steps: []});
  const event = events.get(id);
  event.type ??= row.event_type;
  event.aggregate ??= row.aggregate_type;
  event.key ??= row.aggregate_id;
  event.version ??= row.version;
  return event;
}

function addOutgoing(event, row) {
  event.payload ??= row.encoding ? row : null;
  event.attributes ??= row.attributes;
  // Several publications may send the events of one outbox: it was emitted once.
  if (!event.steps.some((step) => step.kind === "emitted" && step.place === row.outbox)) {
    event.steps.push({kind: "emitted", order: 0, at: row.occurred_at, place: row.outbox});
  }
  event.steps.push({kind: "outgoing", order: 1, at: row.published_at, place: row.publication, row});
}

function addIncoming(event, row) {
  event.steps.push({kind: "incoming", order: 2, at: row.received_at, place: row.inbox, row});
}

function addLetter(event, row) {
  event.steps.push({kind: "letter", order: 3, at: row.failed_at, place: row.inbox, row});
}

function addDiscarded(event, row) {
  event.steps.push({kind: "discarded", order: 4, at: row.discarded_at, place: row.inbox, row});
}

// The order is that of the way. Times come from several clocks, so they decide only within one kind of step.
function finish(event) {
  event.steps.sort((one, other) => one.order - other.order || timeOf(one) - timeOf(other));
  event.time = Math.min(...event.steps.map(timeOf).filter(Boolean), Infinity);
}

function timeOf({at}) {
  const time = Date.parse(at ?? "");
  return Number.isNaN(time) ? 0 : time;
}

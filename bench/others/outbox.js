// Publishing as services write it by hand with Node, for bench/run cost. It claims a batch of rows FOR UPDATE SKIP LOCKED under a
// token, publishes them with Google's client, and marks them as published with one UPDATE. When nothing is left it looks again in a
// second. Where the servers are is in PUBSUB_EMULATOR_HOST and in libpq's variables.
//
//     outbox.js BATCH
'use strict';

const {setTimeout: sleep} = require('node:timers/promises');
const {Client} = require('pg');
const {client, run} = require('../../tests/node/connection.js');

const CLAIM = `WITH next AS (
    SELECT id FROM by_hand.outbox WHERE published_at IS NULL AND (next_retry_at IS NULL OR next_retry_at <= now())
    ORDER BY occurred_at, id LIMIT $2 FOR UPDATE SKIP LOCKED),
claimed AS (UPDATE by_hand.outbox o SET lock_token = $1, locked_at = now() FROM next WHERE o.id = next.id RETURNING o.*)
SELECT id, aggregate_type, aggregate_id, event_type, version, payload, occurred_at FROM claimed ORDER BY occurred_at, id`;
const MARK = `UPDATE by_hand.outbox SET published_at = now(), lock_token = NULL, locked_at = NULL
WHERE id = ANY($1::uuid[]) AND lock_token = $2`;

function messageOf(row) {
  return {
    data: row.payload,
    orderingKey: row.aggregate_id,
    attributes: {
      event_id: row.id,
      event_type: row.event_type,
      aggregate_id: row.aggregate_id,
      aggregate_type: row.aggregate_type,
      version: row.version,
      schema_version: 'v1',
      occurred_at: row.occurred_at.toISOString(),
    },
  };
}

run(async () => {
  const db = new Client();
  await db.connect();
  const topic = client().topic('catalog.video.events', {messageOrdering: true});
  const token = `worker-${process.pid}`;
  for (;;) {
    const {rows} = await db.query({name: 'claim', text: CLAIM, values: [token, process.argv[2]]});
    if (rows.length === 0) {
      await sleep(1000);
      continue;
    }
    await Promise.all(rows.map(row => topic.publishMessage(messageOf(row))));
    await db.query({name: 'mark', text: MARK, values: [rows.map(row => row.id), token]});
  }
});

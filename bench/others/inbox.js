// Applying as services write it by hand with Node, for bench/run cost. For each message a transaction inserts its id into an inbox
// and upserts the newer version; the message is acked when that is committed. Where the servers are
// is in PUBSUB_EMULATOR_HOST and in libpq's variables.
//
//     inbox.js CONNECTIONS
'use strict';

const {Pool} = require('pg');
const {client, run} = require('../../tests/node/connection.js');

const SEEN = 'INSERT INTO by_hand.inbox (event_id) VALUES ($1) ON CONFLICT (event_id) DO NOTHING';
const UPSERT = `INSERT INTO by_hand.video AS v (video_id, title, version) VALUES ($1, $2, $3)
ON CONFLICT (video_id) DO UPDATE SET title = EXCLUDED.title, version = EXCLUDED.version WHERE v.version < EXCLUDED.version`;

async function apply(pool, message) {
  const {event_id: id, version} = message.attributes;
  const body = JSON.parse(message.data);
  const db = await pool.connect();
  try {
    await db.query('BEGIN');
    const {rowCount} = await db.query({name: 'seen', text: SEEN, values: [id]});
    if (rowCount > 0) await db.query({name: 'upsert', text: UPSERT, values: [body.video_id, body.title, version]});
    await db.query('COMMIT');
  } catch (error) {
    await db.query('ROLLBACK');
    throw error;
  } finally {
    db.release();
  }
}

run(async () => {
  const pool = new Pool({max: Number(process.argv[2])});
  const subscription = client().subscription('catalog.video.events.bench-reader', {streamingOptions: {maxStreams: 1}});
  subscription.on('message', message =>
    apply(pool, message).then(
      () => message.ack(),
      error => {
        console.error(error);
        message.nack();
      }
    )
  );
  await new Promise((_, reject) => subscription.on('error', reject));
});

// Publishes the messages of standard input, one JSON line each:
//   {"topic": "NAME", "data": "text" | "data_base64": "...", "attributes": {...}, "ordering_key": "KEY", "times": 1}
// and prints {"message_ids": [...]} for each, in the order of the input. Messages are passed to the client library without
// waiting for the result of the one before, as a service does. "times": 2 publishes a message twice with the same attributes,
// one directly after the other. A publisher that got no answer and tries again does the same.
//
// `node publish.js trace` traces, and prints {"trace_ids": [...]} at the end, those of the messages.
'use strict';

const {client, jsonLines, print, run} = require('./connection.js');
const {startTracing} = require('./tracing.js');

run(async () => {
  const tracing = process.argv[2] === 'trace' ? startTracing() : undefined;
  const pubsub = client(tracing !== undefined);
  const topics = new Map();
  const results = [];
  for await (const message of jsonLines()) {
    const ordered = Boolean(message.ordering_key);
    const id = `${ordered} ${message.topic}`;
    if (!topics.has(id)) topics.set(id, pubsub.topic(message.topic, {messageOrdering: ordered}));
    const topic = topics.get(id);
    const data =
      message.data_base64 !== undefined ? Buffer.from(message.data_base64, 'base64') : Buffer.from(message.data || '');
    const attempts = [];
    for (let time = 0; time < (message.times || 1); ++time) {
      attempts.push(
        topic.publishMessage({
          data,
          attributes: message.attributes || {},
          ...(ordered ? {orderingKey: message.ordering_key} : {}),
        })
      );
    }
    results.push(Promise.all(attempts));
  }
  for (const result of await Promise.all(results)) print({message_ids: result});
  if (tracing !== undefined) print({trace_ids: tracing.publishedTraces()});
});

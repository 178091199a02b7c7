// Receives from subscriptions until SIGTERM and acknowledges everything:
//   node receive.js SUBSCRIPTION[,SUBSCRIPTION...] [trace]
// Prints {"listening": [SUBSCRIPTION...]} once, then one JSON line per message in the order of delivery:
//   {"subscription", "message_id", "data_base64", "attributes", "ordering_key", "publish_time", "delivery_attempt"}
// With `trace` the client traces, and each line has "span", what the client began when it received the message:
//   {"trace_id", "parent_span_id", "span_id"}
'use strict';

const {Duration} = require('@google-cloud/pubsub');
const {client, print, run} = require('./connection.js');
const {startTracing} = require('./tracing.js');

run(async () => {
  const tracing = process.argv[3] === 'trace' ? startTracing() : undefined;
  const pubsub = client(tracing !== undefined);
  const names = process.argv[2].split(',');
  const subscriptions = names.map(name => pubsub.subscription(name, {
    // The client would send 3000 acks at once, more than the 512 KiB that a request may have, and so lose them all.
    batching: {maxMessages: 1000},
    // A busy machine must not let it miss the deadline of 10 s that it would choose for itself.
    minAckDeadline: Duration.from({seconds: 60}),
  }));
  const stopped = new Promise((resolve, reject) => {
    process.once('SIGTERM', resolve);
    process.once('SIGINT', resolve);
    subscriptions.forEach(subscription => subscription.on('error', reject));
  });
  subscriptions.forEach((subscription, index) => subscription.on('message', message => {
    print({
      subscription: names[index],
      message_id: message.id,
      data_base64: message.data.toString('base64'),
      attributes: message.attributes,
      ordering_key: message.orderingKey || '',
      publish_time: message.publishTime.toISOString(),
      delivery_attempt: message.deliveryAttempt,
      ...(tracing === undefined ? {} : {span: tracing.parentage(message.parentSpan)}),
    });
    message.ack();
  }));
  print({listening: names});
  await stopped;
  await Promise.all(subscriptions.map(subscription => subscription.close()));
});

// Google's Node client as an outside peer. Each line of standard input is one order in JSON, and has one line of answer:
//   {"create_topic": "NAME"}
//   {"create_subscription": "NAME", "topic": "TOPIC", "options": {...CreateSubscriptionOptions...},
//    "dead_letter_topic": "TOPIC", "max_delivery_attempts": 5}
//   {"show_all": true, "policies": true}: everything that there is, as Google's client sees it; null where the server has none of
//     its kind. To ask for policies takes a call for each.
//   {"publish": [{"topic": "NAME", "data": "text" | "data_base64": "...", "attributes": {...}, "ordering_key": "KEY", "times": 1}]}
//     Answers {"message_ids": [[ID]]}. Messages are passed to the client library without waiting for the result of the one
//     before, as a service does. "times": 2 publishes a message twice with the same attributes, one directly after the other.
//     A publisher that got no answer and tries again does the same.
//   {"receive": ["SUBSCRIPTION"]}: acknowledges everything from now on, and prints a line for each message in the order of delivery:
//     {"subscription", "message_id", "data_base64", "attributes", "ordering_key", "publish_time", "delivery_attempt"}
// "server": "HOST:PORT" in an order asks another one than PUBSUB_EMULATOR_HOST. With "trace": true the client traces from then on:
// answers to publish have "trace_ids", those of the messages, and messages have "span", what the client began when it received them:
//   {"trace_id", "parent_span_id", "span_id"}
'use strict';

const {Duration} = require('@google-cloud/pubsub');
const {client, jsonLines, print, run} = require('./connection.js');
const {startTracing} = require('./tracing.js');

// null if the server does not implement the call. What it has once said of a kind holds for all of it.
const unimplemented = new Set();
async function orNull(kind, call) {
  if (unimplemented.has(kind)) return null;
  try {
    return await call();
  } catch (error) {
    if (error.code !== 12) throw error;
    unimplemented.add(kind);
    return null;
  }
}

async function showAll(pubsub, policies) {
  const all = {topics: {}, subscriptions: {}, policies: {}};
  const show = async one => {
    if (policies) all.policies[one.name] = await orNull('policies', async () => (await one.iam.getPolicy())[0].bindings);
    return one.metadata || (await one.getMetadata())[0];
  };
  for (const topic of (await pubsub.getTopics())[0]) {
    all.topics[topic.name] = await show(topic);
  }
  for (const subscription of (await pubsub.getSubscriptions())[0]) {
    all.subscriptions[subscription.name] = await show(subscription);
  }
  all.schemas = await orNull('schemas', async () => {
    const schemas = {};
    for await (const schema of pubsub.listSchemas('FULL')) schemas[schema.name] = schema;
    return schemas;
  });
  return all;
}

async function createSubscription(pubsub, order) {
  const options = {...order.options};
  if (order.dead_letter_topic) {
    options.deadLetterPolicy = {
      deadLetterTopic: pubsub.topic(order.dead_letter_topic).name,
      maxDeliveryAttempts: order.max_delivery_attempts || 5,
    };
  }
  const [subscription] = await pubsub.createSubscription(order.topic, order.create_subscription, options);
  return {subscription: subscription.name};
}

async function publish(pubsub, messages, tracing) {
  const topics = new Map();
  const results = messages.map(message => {
    const ordered = Boolean(message.ordering_key);
    const id = `${ordered} ${message.topic}`;
    if (!topics.has(id)) topics.set(id, pubsub.topic(message.topic, {messageOrdering: ordered}));
    const data =
      message.data_base64 !== undefined ? Buffer.from(message.data_base64, 'base64') : Buffer.from(message.data || '');
    return Promise.all(Array.from({length: message.times || 1}, () =>
      topics.get(id).publishMessage({
        data,
        attributes: message.attributes || {},
        ...(ordered ? {orderingKey: message.ordering_key} : {}),
      })
    ));
  });
  return {message_ids: await Promise.all(results), ...(tracing && {trace_ids: tracing.publishedTraces()})};
}

function receive(pubsub, name, tracing, failed) {
  const subscription = pubsub.subscription(name, {
    // The client would send 3000 acks at once, more than the 512 KiB that a request may have, and so lose them all.
    batching: {maxMessages: 1000},
    // A busy machine must not let it miss the deadline of 10 s that it would choose for itself.
    minAckDeadline: Duration.from({seconds: 60}),
  });
  subscription.on('error', failed);
  subscription.on('message', message => {
    print({
      subscription: name,
      message_id: message.id,
      data_base64: message.data.toString('base64'),
      attributes: message.attributes,
      ordering_key: message.orderingKey || '',
      publish_time: message.publishTime.toISOString(),
      delivery_attempt: message.deliveryAttempt,
      ...(tracing && {span: tracing.parentage(message.parentSpan)}),
    });
    message.ack();
  });
  return subscription;
}

run(async () => {
  const clients = new Map();
  const subscriptions = [];
  let tracing, failed;
  const failure = new Promise((_, reject) => (failed = reject));
  const answer = async order => {
    if (order.trace) tracing ??= startTracing();
    const id = `${order.server} ${tracing !== undefined}`;
    if (!clients.has(id)) clients.set(id, client({server: order.server, trace: tracing !== undefined}));
    const pubsub = clients.get(id);
    if (order.create_topic) return {topic: (await pubsub.createTopic(order.create_topic))[0].name};
    if (order.create_subscription) return createSubscription(pubsub, order);
    if (order.show_all) return showAll(pubsub, order.policies);
    if (order.publish) return publish(pubsub, order.publish, tracing);
    if (!order.receive) throw new Error(`unknown order: ${JSON.stringify(order)}`);
    subscriptions.push(...order.receive.map(name => receive(pubsub, name, tracing, failed)));
    return {listening: order.receive};
  };
  const orders = async () => {
    for await (const order of jsonLines()) print({answer: await answer(order)});
  };
  // Until standard input ends, or SIGTERM comes.
  await Promise.race([orders(), failure, new Promise(resolve => process.once('SIGTERM', resolve))]);
  await Promise.all(subscriptions.map(subscription => subscription.close()));
});

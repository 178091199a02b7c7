// Creates and changes topics and subscriptions. Each line of standard input is one order in JSON:
//   {"create_topic": "NAME"}
//   {"create_subscription": "NAME", "topic": "TOPIC", "options": {...CreateSubscriptionOptions...},
//    "dead_letter_topic": "TOPIC", "max_delivery_attempts": 5}
//   {"seek_to_seconds_ago": 60, "subscription": "NAME"}
//   {"show_all": true}: everything that there is, as Google's client sees it; null where the server has none of its kind
'use strict';

const {client, jsonLines, print, run} = require('./connection.js');

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

async function showAll(pubsub) {
  const all = {topics: {}, subscriptions: {}, policies: {}};
  for (const topic of (await pubsub.getTopics())[0]) {
    all.topics[topic.name] = topic.metadata || (await topic.getMetadata())[0];
    all.policies[topic.name] = await orNull('policies', async () => (await topic.iam.getPolicy())[0].bindings);
  }
  for (const subscription of (await pubsub.getSubscriptions())[0]) {
    all.subscriptions[subscription.name] = subscription.metadata || (await subscription.getMetadata())[0];
    all.policies[subscription.name] = await orNull('policies', async () => (await subscription.iam.getPolicy())[0].bindings);
  }
  all.schemas = await orNull('schemas', async () => {
    const schemas = {};
    for await (const schema of pubsub.listSchemas('FULL')) schemas[schema.name] = schema;
    return schemas;
  });
  return all;
}

run(async () => {
  const pubsub = client();
  for await (const order of jsonLines()) {
    if (order.create_topic) {
      const [topic] = await pubsub.createTopic(order.create_topic);
      print({topic: topic.name});
    } else if (order.create_subscription) {
      const options = {...order.options};
      if (order.dead_letter_topic) {
        options.deadLetterPolicy = {
          deadLetterTopic: pubsub.topic(order.dead_letter_topic).name,
          maxDeliveryAttempts: order.max_delivery_attempts || 5,
        };
      }
      const [subscription] = await pubsub.createSubscription(order.topic, order.create_subscription, options);
      print({subscription: subscription.name});
    } else if (order.seek_to_seconds_ago !== undefined) {
      await pubsub.subscription(order.subscription).seek(new Date(Date.now() - 1000 * order.seek_to_seconds_ago));
      print({sought: order.subscription});
    } else if (order.show_all) {
      print(await showAll(pubsub));
    } else {
      throw new Error(`unknown order: ${JSON.stringify(order)}`);
    }
  }
});

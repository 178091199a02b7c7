// Creates and changes topics and subscriptions. Each line of standard input is one order in JSON:
//   {"create_topic": "NAME"}
//   {"create_subscription": "NAME", "topic": "TOPIC", "options": {...CreateSubscriptionOptions...},
//    "dead_letter_topic": "TOPIC", "max_delivery_attempts": 5}
//   {"seek_to_seconds_ago": 60, "subscription": "NAME"}
'use strict';

const {client, jsonLines, print, run} = require('./connection.js');

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
    } else {
      throw new Error(`unknown order: ${JSON.stringify(order)}`);
    }
  }
});

// What Pub/Sub promises, as Google's Node client sees it: order, filters, exactly-once, seek by time and by snapshot. Each line of
// standard input is a server, {"server": "HOST:PORT", "keyFilename": "..."}, and has one line of answer: {NAME: what was seen, ...},
// with {refused: CODE} where the server cannot do it, or {"failed": "..."}.
'use strict';

const {client, jsonLines, print, run} = require('./connection.js');

const DEADLINE = 60000; // ms, for what has to come
const UNIMPLEMENTED = 12;

// Reads a subscription until `enough` says so of the data that came, and passes each message to `see`. Returns the data.
async function read(subscription, enough, see = message => message.ack()) {
  const came = [];
  await new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`${subscription.name}: only ${JSON.stringify(came)} came`)), DEADLINE);
    const end = outcome => {
      clearTimeout(timer);
      outcome();
    };
    subscription.on('error', error => end(() => reject(error)));
    subscription.on('message', message => {
      came.push(message.data.toString());
      Promise.resolve(see(message)).then(
        () => enough(came) && end(resolve),
        error => end(() => reject(error))
      );
    });
  });
  await subscription.close();
  return came;
}

const has = (...wanted) => came => wanted.every(one => came.includes(one));
const publish = (topic, ...texts) => Promise.all(texts.map(text => topic.publishMessage({data: Buffer.from(text)})));

async function order(pubsub) {
  const [topic] = await pubsub.createTopic('order');
  const [subscription] = await topic.createSubscription('order-sub', {enableMessageOrdering: true});
  topic.setPublishOptions({messageOrdering: true, batching: {maxMessages: 3}});
  const wanted = [];
  const published = [];
  for (let n = 0; n < 20; ++n) {
    for (const orderingKey of ['a', 'b']) {
      wanted.push(`${orderingKey}${n}`);
      published.push(topic.publishMessage({data: Buffer.from(`${orderingKey}${n}`), orderingKey}));
    }
  }
  // Not flush(), which sends the last batch of a key beside the one before.
  await Promise.all(published);
  const came = await read(subscription, has(...wanted));
  const first = [...new Set(came)]; // a message may come twice
  return Object.fromEntries(['a', 'b'].map(key => [key, first.filter(one => one.startsWith(key)).join(' ')]));
}

async function filter(pubsub) {
  const [topic] = await pubsub.createTopic('filter');
  const [subscription] = await topic.createSubscription('filter-sub', {filter: 'attributes.kind = "good" AND NOT attributes:old'});
  for (const [data, attributes] of [['1', {kind: 'good'}], ['2', {kind: 'bad'}], ['3', {kind: 'good', old: ''}], ['4', {}], ['5', {kind: 'good'}]]) {
    await topic.publishMessage({data: Buffer.from(data), attributes});
  }
  return {came: (await read(subscription, has('1', '5'))).sort()};
}

async function exactlyOnce(pubsub) {
  const [topic] = await pubsub.createTopic('once');
  const [subscription] = await topic.createSubscription('once-sub', {enableExactlyOnceDelivery: true, ackDeadlineSeconds: 10});
  await publish(topic, 'x', 'y', 'z');
  const responses = [];
  const nackedBefore = new Set();
  const came = await read(subscription, () => responses.length === 4, async message => {
    const text = message.data.toString();
    const again = text === 'y' && !nackedBefore.has(text);
    nackedBefore.add(text);
    responses.push(`${text} ${again ? 'nack' : 'ack'} ${await (again ? message.nackWithResponse() : message.ackWithResponse())}`);
  });
  return {came: came.sort(), responses: responses.sort()};
}

async function seekTime(pubsub) {
  const [topic] = await pubsub.createTopic('time');
  const [subscription] = await topic.createSubscription('time-sub', {retainAckedMessages: true});
  const begin = new Date(Date.now() - 1000);
  await publish(topic, 'before');
  const first = await read(subscription, has('before'));
  await subscription.seek(begin);
  const again = await read(pubsub.subscription('time-sub'), has('before'));
  await publish(topic, 'skipped');
  await subscription.seek(new Date(Date.now() + 1000));
  // What is published later than that comes, and it comes alone.
  await new Promise(resolve => setTimeout(resolve, 1500));
  await publish(topic, 'after');
  const last = await read(pubsub.subscription('time-sub'), has('after'));
  return {first, again, last};
}

async function seekSnapshot(pubsub) {
  const [topic] = await pubsub.createTopic('snapshot');
  const [subscription] = await topic.createSubscription('snapshot-sub');
  await publish(topic, 'unread');
  const [snapshot] = await subscription.createSnapshot('a-snapshot');
  await publish(topic, 'later');
  const first = await read(subscription, has('unread', 'later'));
  await snapshot.seek();
  const again = await read(pubsub.subscription('snapshot-sub'), has('unread', 'later'));
  await snapshot.delete();
  return {first: first.sort(), again: again.sort()};
}

async function promises(pubsub) {
  const all = [order, filter, exactlyOnce, seekTime, seekSnapshot];
  const outcomes = await Promise.allSettled(all.map(promise => promise(pubsub)));
  const seen = {};
  for (const [n, {name}] of all.entries()) {
    const {value, reason: error} = outcomes[n];
    if (error && error.code !== UNIMPLEMENTED) return {failed: `${name}: ${error.stack}`};
    seen[name] = error ? {refused: error.code} : value;
  }
  return seen;
}

run(async () => {
  // All at the same time, since they wait more than they compute.
  const all = [];
  for await (const server of jsonLines()) all.push(promises(client(server)));
  for (const seen of all) print(await seen);
});

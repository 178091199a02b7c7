// What Google's Node client sees of an emulator beyond publishing and receiving. Runs the checks of these names, one after the
// other:
//   node emulator.js CHECKS[=NUMBER][@SERVER] ...
// Prints {"checks": NAME} for each, and then one JSON line for each thing that it has seen.
'use strict';

const {execFileSync} = require('node:child_process');
const {v1} = require('@google-cloud/pubsub');
const {client, print, run} = require('./connection.js');

// The code and the text of an error; the code is 0 if there is none.
async function outcome(promise) {
  try {
    await promise;
    return {code: 0, text: ''};
  } catch (error) {
    return {code: error.code, text: error.details || error.message};
  }
}

// Receives until `count` messages came; passes each to `see`.
function receive(subscription, count, see) {
  return new Promise((resolve, reject) => {
    let seen = 0;
    subscription.on('error', reject);
    subscription.on('message', message => {
      see(message);
      if (++seen === count) resolve();
    });
  });
}

async function filters(pubsub) {
  const [topic] = await pubsub.createTopic('filtered');
  const expression = 'attributes:kind AND (attributes.kind = "a" OR hasPrefix(attributes.kind, "b"))';
  const [subscription] = await topic.createSubscription('filtered-sub', {filter: expression});
  const [metadata] = await subscription.getMetadata();
  print({filter: metadata.filter === expression});
  for (const kind of ['a', 'c', 'b1', '', 'b2']) {
    await topic.publishMessage({data: Buffer.from(kind || 'none'), attributes: kind ? {kind} : {}});
  }
  const kinds = [];
  await receive(subscription, 3, message => {
    kinds.push(message.attributes.kind);
    message.ack();
  });
  await subscription.close();
  print({received: kinds.sort()});
  print({refused: await outcome(topic.createSubscription('mixed', {filter: 'attributes:a AND attributes:b OR attributes:c'}))});
  print({changed: await outcome(subscription.setMetadata({filter: 'attributes:b'}))});
}

// Its ids are known before its messages arrive; and it acknowledges all of them at once. (A client that is closed loses one
// of more than 3000 acknowledgements; it is not closed here before the emulator has them.)
async function answers(pubsub, count) {
  const [topic] = await pubsub.createTopic('answered', {});
  const [subscription] = await topic.createSubscription('answered-sub');
  const publisher = pubsub.topic('answered', {batching: {maxMessages: 1}});
  const reader = pubsub.subscription('answered-sub', {flowControl: {maxMessages: 2 * count}});
  const known = new Set();
  const held = [];
  let unknown = 0;
  const received = receive(reader, count, message => {
    if (!known.has(message.id)) ++unknown;
    held.push(message);
  });
  for (let i = 0; i < 200; ++i) known.add(await publisher.publishMessage({data: Buffer.from('x')}));
  const ids = [];
  for (let i = 200; i < count; ++i) ids.push(topic.publishMessage({data: Buffer.from('x')}).then(id => known.add(id)));
  await Promise.all(ids);
  await received;
  print({unknown});
  held.forEach(message => message.ack());
  const fault = ['emulator-fault', '--endpoint', process.env.PUBSUB_EMULATOR_HOST, '--stats'];
  for (;;) {
    const stats = JSON.parse(execFileSync(process.env.POSTBOX, fault));
    const {acked} = stats.subscriptions.find(one => one.name === subscription.name);
    if (Number(acked) >= count) break;
    await new Promise(resolve => setTimeout(resolve, 50));
  }
  print({acked: true});
}

async function refusals(pubsub) {
  const [topic] = await pubsub.createTopic('refusing');
  print({kms: await outcome(pubsub.createTopic({name: 'secret', kmsKeyName: 'key'}))});
  print({transforms: await outcome(pubsub.createTopic({name: 'changed', messageTransforms: [{javascriptUdf: {functionName: 'f', code: 'x'}}]}))});
  print({bigquery: await outcome(topic.createSubscription('exported', {bigqueryConfig: {table: 'a.b.c'}}))});
  print({storage: await outcome(topic.createSubscription('stored', {cloudStorageConfig: {bucket: 'bucket'}}))});
  print({push: await outcome(topic.createSubscription('pushed', {pushEndpoint: 'https://example.com/push'}))});
  print({dead: await outcome(topic.createSubscription('dead', {deadLetterPolicy: {deadLetterTopic: pubsub.topic('nowhere').name, maxDeliveryAttempts: 5}}))});
  print({labels: await outcome(pubsub.createTopic({name: 'labelled', labels: {Key: 'v'}}))});
}

// Milliseconds between the id of a message and the message, in the middle of `count` of them.
async function moment(pubsub, count) {
  const [topic] = await pubsub.createTopic('moment');
  await topic.createSubscription('moment-sub');
  const publisher = pubsub.topic('moment', {batching: {maxMessages: 1}});
  const arrivals = [];
  let arrived = () => {};
  const reader = pubsub.subscription('moment-sub');
  const received = receive(reader, count, message => {
    arrivals.push(performance.now());
    message.ack();
    arrived();
  });
  const taken = [];
  for (let i = 0; i < count; ++i) {
    const arrival = new Promise(resolve => (arrived = resolve));
    const sent = performance.now();
    await publisher.publishMessage({data: Buffer.from('x')});
    await arrival;
    taken.push(arrivals[i] - sent);
  }
  await received;
  await reader.close();
  print({moment: Math.min(...taken)});
}

async function administration(pubsub) {
  const [topic] = await pubsub.createTopic({name: 'kept', messageRetentionDuration: {seconds: 3600}});
  await topic.publishMessage({data: Buffer.from('before')});
  const [subscription] = await topic.createSubscription('kept-sub');
  const [metadata] = await subscription.getMetadata();
  print({retention: Number(metadata.topicMessageRetentionDuration.seconds), expiration: Number(metadata.expirationPolicy.ttl.seconds)});
  print({endpoint: metadata.pushConfig.pushEndpoint});
  await subscription.seek(new Date(Date.now() - 600000));
  await receive(subscription, 1, message => {
    print({replayed: message.data.toString()});
    message.ack();
  });
  await subscription.close();
  const subscriber = new v1.SubscriberClient({servicePath: '127.0.0.1', port: Number(process.env.PUBSUB_EMULATOR_HOST.split(':')[1]),
    sslCreds: require('google-gax').grpc.credentials.createInsecure()});
  const [unnamed] = await subscriber.createSubscription({topic: topic.name});
  print({assigned: /^projects\/[^/]+\/subscriptions\/./.test(unnamed.name)});
  const [snapshot] = await subscriber.createSnapshot({name: '', subscription: subscription.name});
  print({named: /^projects\/[^/]+\/snapshots\/./.test(snapshot.name)});
  const [labelled] = await subscriber.updateSnapshot({snapshot: {name: snapshot.name, labels: {a: 'b'}}, updateMask: {paths: ['labels']}});
  print({labels: labelled.labels});
  print({astray: await outcome(subscriber.seek({subscription: subscription.name, snapshot: subscription.name}))});
  await subscriber.modifyPushConfig({subscription: subscription.name, pushConfig: {}});
  await pubsub.detachSubscription(subscription.name);
  print({detached: (await subscription.detached())[0]});
  print({pull: await outcome(subscriber.pull({subscription: subscription.name, maxMessages: 1, returnImmediately: true}))});
  print({token: await outcome(subscriber.listSubscriptions({project: 'projects/postbox-dev', pageToken: 'nonsense', pageSize: 1}, {autoPaginate: false}))});
}

// Schemas as the client's own system tests use them, and what they do to messages.
async function schemas(pubsub) {
  const definition = JSON.stringify({type: 'record', name: 'Order', fields: [{name: 'id', type: 'string'}]});
  const newer = JSON.stringify({type: 'record', name: 'Order',
    fields: [{name: 'id', type: 'string'}, {name: 'note', type: ['null', 'string'], default: null}]});
  await pubsub.createSchema('order', 'AVRO', definition);
  const listed = async view => {
    const found = [];
    for await (const schema of pubsub.listSchemas(view)) found.push(schema.definition);
    return found;
  };
  print({basic: await listed('BASIC'), full: (await listed('FULL')).map(text => text === definition)});
  const schema = pubsub.schema('order');
  print({read: [(await schema.get('BASIC')).definition, (await schema.get('FULL')).definition === definition]});
  print({bad: await outcome(pubsub.validateSchema({type: 'AVRO', definition: '{"not_actually":"avro"}'}))});
  print({good: await outcome(pubsub.validateSchema({type: 'PROTOCOL_BUFFER', definition: 'syntax = "proto3"; message M { string a = 1; }'}))});
  print({follows: await outcome(schema.validateMessage(Buffer.from('{"id":"a"}'), 'JSON'))});
  print({strays: await outcome(schema.validateMessage(Buffer.from('{"foo":"bar"}'), 'JSON'))});
  const [topic] = await pubsub.createTopic({name: 'ordered', schemaSettings: {schema: await schema.getName(), encoding: 'JSON'}});
  const [subscription] = await topic.createSubscription('ordered-sub');
  print({refused: await outcome(topic.publishMessage({data: Buffer.from('{"id":1}')}))});
  const client = await pubsub.getSchemaClient();
  const [revision] = await client.commitSchema({name: await schema.getName(), schema: {type: 'AVRO', definition: newer}});
  print({incompatible: await outcome(client.commitSchema({name: await schema.getName(), schema: {type: 'AVRO', definition: '"int"'}}))});
  await topic.publishMessage({data: Buffer.from('{"id":"a","note":{"string":"b"}}')});
  await receive(subscription, 1, message => {
    const {attributes} = message;
    print({marked: [attributes.googclient_schemaname.endsWith('/order'), attributes.googclient_schemaencoding,
      attributes.googclient_schemarevisionid === revision.revisionId]});
    message.ack();
  });
  await subscription.close();
  await schema.delete();
  print({orphaned: await outcome(topic.publishMessage({data: Buffer.from('{"id":"a"}')}))});
}

async function policies(pubsub) {
  const [topic] = await pubsub.createTopic('guarded');
  const [before] = await topic.iam.getPolicy();
  const binding = {role: 'roles/pubsub.publisher', members: ['user:someone@example.com']};
  await topic.iam.setPolicy({...before, bindings: [binding]});
  const [after] = await topic.iam.getPolicy();
  print({members: after.bindings[0].members});
  print({stale: await outcome(topic.iam.setPolicy({...before, bindings: []}))});
  const [permissions] = await topic.iam.testPermissions(['pubsub.topics.publish']);
  print({permissions});
}

const CHECKS = {filters, answers, moment, refusals, administration, schemas, policies};

run(async () => {
  for (const argument of process.argv.slice(2)) {
    const [, name, number, server] = /^(\w+)(?:=(\d+))?(?:@(.*))?$/.exec(argument);
    print({checks: name});
    await CHECKS[name](client({server}), Number(number));
  }
});

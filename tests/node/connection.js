// Shared by the scripts: the client, and standard input as a sequence of JSON values.
//
// The server is one that a script names, or PUBSUB_EMULATOR_HOST. With a file of credentials it is asked over TLS. The project is
// PUBSUB_PROJECT_ID.
// Every script reads JSON lines from standard input, writes one JSON line per result to standard output, and ends with a
// non-zero status and a message on standard error as soon as anything fails. @google-cloud/pubsub is found through
// NODE_PATH, because control/node-modules installs it outside the source tree.
'use strict';

const readline = require('node:readline');
const {PubSub} = require('@google-cloud/pubsub');

function client({server = process.env.PUBSUB_EMULATOR_HOST, keyFilename, trace = false} = {}) {
  if (!server) {
    throw new Error('PUBSUB_EMULATOR_HOST is not set: these scripts only talk to emulators');
  }
  return new PubSub({projectId: process.env.PUBSUB_PROJECT_ID || 'postbox-dev', apiEndpoint: server, enableOpenTelemetryTracing: trace,
    ...(keyFilename && {keyFilename, emulatorMode: false})});
}

async function* jsonLines() {
  for await (const line of readline.createInterface({input: process.stdin})) {
    if (line.trim() !== '') yield JSON.parse(line);
  }
}

function print(value) {
  process.stdout.write(JSON.stringify(value) + '\n');
}

function run(main) {
  main().then(
    // A pipe takes 64 KiB at a time: exit() would cut off the rest.
    () => process.stdout.write('', () => process.exit(0)),
    error => {
      console.error(error);
      process.exit(1);
    }
  );
}

module.exports = {client, jsonLines, print, run};

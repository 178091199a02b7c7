// Proves that proto/google/** is a subset of the official Google definitions:
// every message, field (name, number, type, label, oneof), enum value and RPC
// (request, response, streaming) that we declare is declared the same there,
// and every RPC of a service that we declare is declared by us, too.
//
// Official definitions: the .proto files inside the npm packages of Google's
// Node client (@google-cloud/pubsub and its google-gax), found under
// $POSTBOX_NODE_MODULES. Both sides are compiled by the same protoc, and the
// descriptors are compared, so exact names count (the packages' protos.json
// has only camel-case names).
//
// Usage: compare.js [folder of our protos]
'use strict';

const fs = require('fs');
const os = require('os');
const path = require('path');
const {execFileSync} = require('child_process');
const {createRequire} = require('module');

const modules = path.resolve(process.env.POSTBOX_NODE_MODULES || 'node_modules');
const ours = path.resolve(process.argv[2] || path.join(__dirname, '..', '..', 'proto'));
const protoc = process.env.PROTOC || 'protoc';

const clientRequire = createRequire(path.join(modules, '@google-cloud', 'pubsub', 'package.json'));
const gaxRequire = createRequire(clientRequire.resolve('google-gax'));
const descriptor = gaxRequire('protobufjs/ext/descriptor');

// The folder `build/protos` of an installed package.
function protosOf(resolved, name) {
  const end = resolved.lastIndexOf(path.join('node_modules', name));
  return path.join(resolved.slice(0, end), 'node_modules', name, 'build', 'protos');
}

function compile(temporary, label, folders, files) {
  const out = path.join(temporary, label);
  const args = folders.map(folder => `-I${folder}`);
  execFileSync(protoc, [...args, '--include_imports', `--descriptor_set_out=${out}`, ...files],
               {stdio: ['ignore', 'inherit', 'inherit']});
  return descriptor.FileDescriptorSet.decode(fs.readFileSync(out)).file;
}

// A descriptor set as a map from what is declared to how it is declared.
function facts(files, wanted) {
  const found = new Map();
  const message = (type, scope) => {
    const name = `${scope}.${type.name}`;
    found.set(`message ${name}`, 'declared');
    for (const field of type.field) {
      // typeName is a full name with a leading dot for messages and enums.
      const oneof = field.oneofIndex === null || !Object.hasOwn(field, 'oneofIndex') ?
          '' :
          ` oneof ${type.oneofDecl[field.oneofIndex].name}`;
      found.set(`field ${name}.${field.name}`,
                `number ${field.number} type ${field.type} ${field.typeName} ` +
                    `label ${field.label}${oneof}${field.proto3Optional ? ' optional' : ''}`);
    }
    for (const inner of type.nestedType) message(inner, name);
    for (const inner of type.enumType) enumeration(inner, name);
  };
  const enumeration = (type, scope) => {
    found.set(`enum ${scope}.${type.name}`, 'declared');
    for (const value of type.value) {
      found.set(`value ${scope}.${type.name}.${value.name}`, `number ${value.number || 0}`);
    }
  };
  for (const file of files) {
    if (!wanted(file)) continue;
    const scope = `.${file.package}`;
    for (const type of file.messageType) message(type, scope);
    for (const type of file.enumType) enumeration(type, scope);
    for (const service of file.service) {
      found.set(`service ${scope}.${service.name}`, 'declared');
      for (const method of service.method) {
        found.set(`rpc ${scope}.${service.name}/${method.name}`,
                  `${method.clientStreaming ? 'stream ' : ''}${method.inputType} returns ` +
                      `${method.serverStreaming ? 'stream ' : ''}${method.outputType}`);
      }
    }
  }
  return found;
}

function main() {
  const temporary = fs.mkdtempSync(path.join(os.tmpdir(), 'postbox-proto-'));
  try {
    const names = fs.readdirSync(path.join(ours, 'google'), {recursive: true})
                      .filter(name => name.endsWith('.proto'))
                      .map(name => path.join('google', name));
    const mine = compile(temporary, 'ours', [ours], names);
    const gax = protosOf(clientRequire.resolve('google-gax'), 'google-gax');
    const pubsub = path.join(modules, '@google-cloud', 'pubsub', 'build', 'protos');
    const official = compile(temporary, 'official', [pubsub, gax], names);

    const wanted = file => names.includes(file.name);
    const declared = facts(mine, wanted);
    const expected = facts(official, wanted);
    const differences = [];
    for (const [what, how] of declared) {
      const there = expected.get(what);
      if (there === undefined) {
        differences.push(`${what}: not in the official definition (ours: ${how})`);
      } else if (there !== how) {
        differences.push(`${what}: ours "${how}", official "${there}"`);
      }
    }
    for (const what of expected.keys()) {
      const service = what.startsWith('rpc ') && `service ${what.slice(4).split('/')[0]}`;
      if (service && declared.has(service) && !declared.has(what)) {
        differences.push(`${what}: missing in ours`);
      }
    }
    const count = kind => [...declared.keys()].filter(key => key.startsWith(kind)).length;
    // A comparison of nothing would succeed, too.
    if (count('field ') < 150 || count('rpc ') !== 38 || count('value ') < 10) {
      differences.push(`too little was compared: ${declared.size} declarations`);
    }
    if (differences.length > 0) {
      console.error(differences.join('\n'));
      console.error(`${differences.length} difference(s) from the official definitions`);
      return 1;
    }
    console.log(`${count('message ')} messages, ${count('field ')} fields, ${count('value ')} enum ` +
                `values and ${count('rpc ')} RPCs equal the official definitions`);
    return 0;
  } finally {
    fs.rmSync(temporary, {recursive: true, force: true});
  }
}

process.exitCode = main();

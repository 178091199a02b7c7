// One StreamingPull call.
//
// Reads and writes are independent. At most one write is in flight, and messages are leased only
// when there is none, so that leased messages are sent at once. Every event that may change what
// the stream has to send (messages, acks, pings, faults, shutdown) calls Pump(), which checks all
// of them.
//
// - The first request opens the stream. Its answer is an empty response with the properties of the
//   subscription, which every response has.
// - An empty request is a ping. It is answered if the client uses protocol version 1.
// - When the client closes its side, the stream ends with OK.
// - Lock order: the mutex of the stream before that of the broker. The broker wakes streams without
//   locks.
#ifndef POSTBOX_WORKER_EMULATOR_STREAMING_PULL_H_
#define POSTBOX_WORKER_EMULATOR_STREAMING_PULL_H_

#include <grpcpp/grpcpp.h>

#include "worker/emulator/broker/broker.h"
#include "worker/emulator/call_gate.h"

namespace postbox::emulator {

// The reactor owns itself.
// It reads and writes wire format: StreamingPullRequest, StreamingPullResponse.
grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StartStreamingPull(
    Broker* broker, CallGate* gate, grpc::CallbackServerContext* context);

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_STREAMING_PULL_H_

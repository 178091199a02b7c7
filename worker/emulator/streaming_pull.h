// One StreamingPull call.
//
// Reads and writes go on side by side. At most one write is in flight, and messages are leased only
// when it is free: what is leased is on its way. Everything that may change what the stream has to
// say (messages, acks, pings, faults, shutdown) ends in Pump(), which looks at all of it.
//
// - The first request opens the stream; the answer to it is an empty response that carries the
//   subscription's properties, as every response does.
// - An empty request is a ping. It is answered if the client speaks protocol version 1.
// - When the client closes its side the stream ends with OK.
// - Lock order: the stream's mutex before the broker's. The broker wakes streams without locks.
#ifndef POSTBOX_WORKER_EMULATOR_STREAMING_PULL_H_
#define POSTBOX_WORKER_EMULATOR_STREAMING_PULL_H_

#include <grpcpp/grpcpp.h>

#include "google/pubsub/v1/pubsub.pb.h"
#include "worker/emulator/broker.h"
#include "worker/emulator/call_gate.h"

namespace postbox::emulator {

// The reactor owns itself.
grpc::ServerBidiReactor<google::pubsub::v1::StreamingPullRequest,
                        google::pubsub::v1::StreamingPullResponse>*
StartStreamingPull(Broker* broker, CallGate* gate);

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_STREAMING_PULL_H_

// What became of each ack id of an Acknowledge or ModifyAckDeadline request.
//
// Under exactly-once delivery a failed request says so per id, in an ErrorInfo in the status
// details (trailer grpc-status-details-bin): its metadata maps ack id -> PERMANENT_FAILURE_... or
// TRANSIENT_FAILURE_...; an id that is missing from a map that names any succeeded. Without such a
// map the status code speaks for all ids.

#ifndef POSTBOX_WORKER_PUBSUB_ACK_RESULTS_H_
#define POSTBOX_WORKER_PUBSUB_ACK_RESULTS_H_

#include <grpcpp/support/status.h>

#include <string>
#include <vector>

#include "worker/pubsub/ack_batcher.h"

namespace postbox::pubsub {

enum class AckResult {
  kSuccess,
  kTransient,  // try again
  kPermanent,  // the id is worthless; a redelivery under another id is coming
};

// One result per entry, in order.
std::vector<AckResult> AckResults(const grpc::Status& status, const std::vector<AckEntry>& entries);

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_ACK_RESULTS_H_

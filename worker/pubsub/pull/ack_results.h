// The result of each ack id of an Acknowledge or ModifyAckDeadline request.
//
// Under exactly-once delivery a failed request tells the result of each id, in an ErrorInfo in the
// status details (trailer grpc-status-details-bin). Its metadata maps an ack id to
// PERMANENT_FAILURE_... or TRANSIENT_FAILURE_.... If the map names any id of the request, an id
// that it does not name succeeded. Without such a map the status code holds for all ids.

#ifndef POSTBOX_WORKER_PUBSUB_PULL_ACK_RESULTS_H_
#define POSTBOX_WORKER_PUBSUB_PULL_ACK_RESULTS_H_

#include <grpcpp/support/status.h>

#include <string>
#include <vector>

#include "worker/pubsub/pull/ack_batcher.h"

namespace postbox::pubsub {

enum class AckResult {
  kSuccess,
  kTransient,  // to be tried again
  kPermanent,  // the id is no longer valid; the message is delivered again under another id
};

// One result for each entry, in order.
std::vector<AckResult> AckResults(const grpc::Status& status, const std::vector<AckEntry>& entries);

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PULL_ACK_RESULTS_H_

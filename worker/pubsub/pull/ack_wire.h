// Writes AcknowledgeRequest and ModifyAckDeadlineRequest in wire format, without the generated
// classes, which copy each ack id. The format cannot change (google.pubsub.v1; both: subscription =
// 1; AcknowledgeRequest: ack_ids = 2; ModifyAckDeadlineRequest: ack_deadline_seconds = 3, ack_ids =
// 4). The test compares with the generated classes.

#ifndef POSTBOX_WORKER_PUBSUB_PULL_ACK_WIRE_H_
#define POSTBOX_WORKER_PUBSUB_PULL_ACK_WIRE_H_

#include <string>
#include <string_view>

#include "worker/pubsub/pull/ack_batcher.h"

namespace postbox::pubsub {

std::string EncodeAckRequest(std::string_view subscription, const AckRequest& request);

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PULL_ACK_WIRE_H_

// A message that a topic has taken. It never changes afterwards and is shared by the topic's
// subscriptions and snapshots.
#ifndef POSTBOX_WORKER_EMULATOR_MESSAGE_H_
#define POSTBOX_WORKER_EMULATOR_MESSAGE_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/time/time.h"
#include "google/pubsub/v1/pubsub.pb.h"

namespace postbox::emulator {

struct Message {
  google::pubsub::v1::PubsubMessage proto;  // with message_id and publish_time
  uint64_t sequence = 0;                    // the order in which the server took messages
  absl::Time published;
  size_t bytes = 0;  // of `proto`, on the wire
};
using MessagePtr = std::shared_ptr<const Message>;

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_MESSAGE_H_

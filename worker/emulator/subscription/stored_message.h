// A message that a topic has taken. It does not change afterwards, and the subscriptions and
// snapshots of the topic share it. It is stored in wire format: a message is received once and
// delivered several times, and to build its attributes each time would be most of the emulator's
// work.
#ifndef POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_STORED_MESSAGE_H_
#define POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_STORED_MESSAGE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "google/pubsub/v1/pubsub.pb.h"

namespace postbox::emulator {

struct StoredMessage {
  std::string wire;  // a serialized PubsubMessage; with message_id and publish_time once stamped
  std::string ordering_key;
  uint64_t sequence = 0;  // the order in which the server took messages
  absl::Time published;

  size_t bytes() const { return wire.size(); }
  google::pubsub::v1::PubsubMessage Parse() const;
};
using StoredMessagePtr = std::shared_ptr<const StoredMessage>;

// `proto` without the message_id and publish_time that its publisher may have set.
std::shared_ptr<StoredMessage> MakeStoredMessage(const google::pubsub::v1::PubsubMessage& proto);

// Sets the sequence, id and time of the message. Called once.
void Stamp(uint64_t sequence, const std::string& message_id, absl::Time now,
           StoredMessage* message);

void SetTimestamp(absl::Time time, google::protobuf::Timestamp* timestamp);
absl::Time ToTime(const google::protobuf::Timestamp& timestamp);
absl::Duration ToDuration(const google::protobuf::Duration& duration);

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_STORED_MESSAGE_H_

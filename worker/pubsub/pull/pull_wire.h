// Reads StreamingPullResponse in wire format, without the generated classes.
//
// The generated classes make some thirty allocations for a small message, most of them for the map
// of its attributes, from which the attributes would be copied. That was half of what it cost to
// receive a message. The format cannot change (google.pubsub.v1; StreamingPullResponse:
// received_messages = 1, subscription_properties = 4; ReceivedMessage: ack_id = 1, message = 2,
// delivery_attempt = 3; PubsubMessage: data = 1, attributes = 2, message_id = 3, publish_time = 4,
// ordering_key = 5). The test compares with the generated classes.
//
// Each message has a block of memory, which its texts refer to. A message that stays for long
// keeps no other one of its response.
//
// A text that is not valid UTF-8 is read like any other one. The generated classes refuse the whole
// response, which would come again and again.

#ifndef POSTBOX_WORKER_PUBSUB_PULL_PULL_WIRE_H_
#define POSTBOX_WORKER_PUBSUB_PULL_PULL_WIRE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/pubsub/pull/subscriber.h"

namespace postbox::pubsub {

struct SubscriptionProperties {
  bool exactly_once = false;
  bool ordered = false;
};

// What is needed of a message until it is settled, which may be long after its consumer has let go
// of it. It has a separate block, since the message may be large.
struct MessageIdentity {
  std::string_view ack_id;
  std::string_view key;
  std::string_view message_id;
  std::shared_ptr<const char[]> block;
};

struct PulledMessage {
  MessageIdentity identity;
  std::int64_t bytes = 0;   // of the message, as it came
  ReceivedMessage message;  // without a handle
};

struct PullResponse {
  std::optional<SubscriptionProperties> properties;
  std::vector<PulledMessage> messages;
};

// Nothing if it cannot be parsed.
std::optional<PullResponse> ReadPullResponse(std::string_view wire);

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PULL_PULL_WIRE_H_

// The messages of a subscription that have used up their delivery attempts, until they are
// published to the dead-letter topic.
#ifndef POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_DEAD_LETTER_QUEUE_H_
#define POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_DEAD_LETTER_QUEUE_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "google/pubsub/v1/pubsub.pb.h"
#include "worker/emulator/subscription/stored_message.h"

namespace postbox::emulator {

// A message that is to be published to `topic`.
struct DeadLetter {
  std::string topic;
  google::pubsub::v1::PubsubMessage message;
};

class DeadLetterQueue {
 public:
  using TopicExists = std::function<bool(const std::string& topic)>;
  explicit DeadLetterQueue(TopicExists topic_exists) : topic_exists_(std::move(topic_exists)) {}

  // Takes a message of this subscription that has failed so often, if its policy says so. Without
  // the dead-letter topic the message stays in the subscription and is delivered again.
  bool Take(const google::pubsub::v1::Subscription& config, const StoredMessage& message,
            int failures);
  // Removes and returns all that were taken.
  std::vector<DeadLetter> Collect() { return std::exchange(letters_, {}); }

 private:
  const TopicExists topic_exists_;
  std::vector<DeadLetter> letters_;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_DEAD_LETTER_QUEUE_H_

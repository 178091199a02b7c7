// Publishes events that cannot be applied to a dead-letter topic.
//
// The message has the data, the attributes and the ordering key of the original one, and three
// attributes more: postbox_error_sqlstate, postbox_error_message (cut to the length that Pub/Sub
// allows) and postbox_original_subscription. Attributes that Pub/Sub would refuse are left out:
// those whose names are reserved for Google (goog...), and those beyond the number of attributes
// that a message may have.
#ifndef POSTBOX_WORKER_PULLER_DEAD_LETTER_TOPIC_H_
#define POSTBOX_WORKER_PULLER_DEAD_LETTER_TOPIC_H_

#include <memory>
#include <mutex>
#include <string>

#include "worker/pubsub/publisher.h"
#include "worker/puller/key_queues.h"

namespace postbox::puller {

// The message to publish. `topic` and `subscription` are full names; `topic` must outlive it.
pubsub::OutgoingMessage DeadLetterMessage(const Delivery& delivery, std::string_view topic,
                                          const std::string& subscription,
                                          const std::string& sqlstate, const std::string& error);

class DeadLetterTopic {
 public:
  DeadLetterTopic(pubsub::Endpoint endpoint, std::string quota_project, std::string topic,
                  std::string subscription)
      : endpoint_(std::move(endpoint)),
        quota_project_(std::move(quota_project)),
        topic_(std::move(topic)),
        subscription_(std::move(subscription)) {}
  ~DeadLetterTopic();

  // Waits for the answer, at most a minute. On failure returns false and puts the reason into
  // `error`. May be called on several threads; the calls are made one after the other, because dead
  // letters are rare.
  bool Publish(const Delivery& delivery, const std::string& sqlstate, const std::string& message,
               std::string* error);

 private:
  const pubsub::Endpoint endpoint_;
  const std::string quota_project_;
  const std::string topic_;
  const std::string subscription_;
  std::mutex mutex_;
  int notify_fd_ = -1;
  std::unique_ptr<pubsub::Publisher> publisher_;  // created by the first Publish
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_DEAD_LETTER_TOPIC_H_

// Publishes events that cannot be applied to a dead-letter topic.
//
// The message has the data, the attributes and the ordering key of the original one, and three
// attributes more: postbox_error_sqlstate, postbox_error_message (cut to the length that Pub/Sub
// allows) and postbox_original_subscription. Attributes that Pub/Sub would refuse are left out:
// those whose names are reserved for Google (goog...), the context of a trace apart, and those
// beyond the number of attributes that a message may have. If the original message leaves no room
// for the error, the message of the error is left out, then all three.
//
// A separate thread publishes, so a topic that does not answer holds up nothing but the keys of
// the events that it does not take. What is on its way is in the hand of the puller and counts
// against its flow control.
#ifndef POSTBOX_WORKER_PULLER_DEAD_LETTER_TOPIC_H_
#define POSTBOX_WORKER_PULLER_DEAD_LETTER_TOPIC_H_

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>

#include "worker/pubsub/publish/publisher.h"
#include "worker/puller/key_queues.h"
#include "worker/puller/sign_of_life.h"

namespace postbox::puller {

// The message to publish. `topic` and `subscription` are full names; `topic` must outlive it.
pubsub::OutgoingMessage DeadLetterMessage(const Delivery& delivery, std::string_view topic,
                                          const std::string& subscription,
                                          const EventFailure& failure);

class DeadLetterTopic {
 public:
  struct Letter {
    Delivery delivery;
    EventFailure failure;
    // The result.
    enum { kPublished, kRefused, kFailed } result = kFailed;  // refused: it will never be taken
    std::string error{};                                      // empty if it was published
  };
  using Callback = std::function<void(Letter)>;
  // Where the topic is, and who publishes there.
  struct Access {
    pubsub::Endpoint endpoint;
    std::string quota_project;
    pubsub::CredentialSpec credential;
  };

  // `on_result` is called once for each letter, on the thread of the topic.
  DeadLetterTopic(Access access, std::string topic, std::string subscription, Callback on_result)
      : access_(std::move(access)),
        topic_(std::move(topic)),
        subscription_(std::move(subscription)),
        on_result_(std::move(on_result)) {}
  ~DeadLetterTopic() { Stop(); }

  // Returns at once. The result comes after kPublishTimeout at the latest. Any thread.
  void Send(Letter letter);
  // How long the thread has given no sign; 0 while there is none. For one thread.
  std::chrono::steady_clock::duration Silence();
  // Ends the thread. No result comes after it has returned; letters without one may or may not have
  // been published.
  void Stop();

 private:
  struct Sent {
    pubsub::OutgoingMessage message;
    Letter letter;
  };

  void Run();
  bool Open(std::string* error);
  void Publish(Letter letter);
  void TakeResults();

  const Access access_;
  const std::string topic_;
  const std::string subscription_;
  const Callback on_result_;

  std::mutex mutex_;
  std::deque<Letter> waiting_;  // guarded
  bool stopping_ = false;       // guarded
  std::thread thread_;          // started by the first Send; guarded
  int notify_fd_ = -1;          // written by Send, by Stop, and by the publisher; guarded
  SignOfLife sign_;

  // Of the thread.
  std::unique_ptr<pubsub::Publisher> publisher_;
  std::unordered_map<const pubsub::OutgoingMessage*, std::unique_ptr<Sent>> sent_;
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_DEAD_LETTER_TOPIC_H_

// What the publish scheduler needs from its user. None of these functions may call the scheduler.
#ifndef POSTBOX_WORKER_PUBSUB_PUBLISH_PUBLISH_HOST_H_
#define POSTBOX_WORKER_PUBSUB_PUBLISH_PUBLISH_HOST_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "worker/pubsub/publish/outgoing_message.h"

namespace postbox::pubsub {

// A (topic, key) with outstanding messages. Opaque to the host. It lives until
// PublishScheduler::Taken() was called for all of its messages.
class OutgoingQueue;

class PublishHost {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  struct Request {
    std::uint64_t id;
    int channel;
    const std::string& topic;
    const std::vector<OutgoingMessage*>& messages;
    std::size_t size;  // of the encoded request, bytes
    std::chrono::milliseconds timeout;
  };

  virtual ~PublishHost() = default;
  virtual TimePoint Now() = 0;
  virtual double Random() = 0;  // in [0, 1)
  // Sends the request. PublishScheduler::OnResponse() must be called for it later, exactly once.
  // What `request` refers to is valid only during the call.
  virtual void Send(const Request& request) = 0;
  // The answer to this request is no longer waited for: end it soon.
  virtual void Abort(std::uint64_t request_id) = 0;
  // Nothing is in flight on this channel, and it is not needed now.
  virtual void CloseChannel(int channel) = 0;
  // A message has its result in status and error. PublishScheduler::Taken() must be called when the
  // caller has it.
  virtual void Deliver(OutgoingMessage* message, OutgoingQueue* queue) = 0;
  // A request to a topic has failed, and none was answered since `since`.
  virtual void TopicFails(const std::string& topic, TimePoint since, TimePoint next_try,
                          const std::string& error) = 0;
  // One that failed answers again.
  virtual void TopicAnswers(const std::string& topic) = 0;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PUBLISH_PUBLISH_HOST_H_

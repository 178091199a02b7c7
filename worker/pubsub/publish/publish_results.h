// Gives messages their results, those of a key in the order of its messages.
//
// The first message of a key that is not published stops the key. All messages of the key behind
// it, and all that are added until the results of every message of the key were taken, are kBehind.
// Then the queue is removed, and the failure with it.
#ifndef POSTBOX_WORKER_PUBSUB_PUBLISH_PUBLISH_RESULTS_H_
#define POSTBOX_WORKER_PUBSUB_PUBLISH_PUBLISH_RESULTS_H_

#include <chrono>
#include <string>

#include "worker/pubsub/publish/metering.h"
#include "worker/pubsub/publish/outgoing_batch.h"
#include "worker/pubsub/publish/outgoing_message.h"
#include "worker/pubsub/publish/outgoing_queue.h"
#include "worker/pubsub/publish/publish_host.h"

namespace postbox::pubsub {

class PublishResults {
 public:
  using TimePoint = PublishHost::TimePoint;

  static constexpr char kNotSent[] = "CANCELLED: not sent, the publisher was told to stop";

  // Host and metering live as long.
  PublishResults(PublishHost* host, const Metering* metering,
                 std::chrono::milliseconds publish_timeout)
      : host_(host), metering_(metering), publish_timeout_(publish_timeout) {}

  void Published(OutgoingQueue* queue, const OutgoingBatch& batch, TimePoint now);
  // Whether a message that is added must not be sent and need not wait for others; then it has its
  // result.
  bool RefuseAdded(OutgoingQueue* queue, OutgoingMessage* message) {
    const bool refused =
        queue->failed || (!queue->keyed() && message->status == PublishStatus::kRejected);
    if (refused) Refuse(queue, message);
    return refused;
  }
  // The message that is next is rejected.
  void RejectNext(OutgoingQueue* queue);
  void Fail(OutgoingQueue* queue, const OutgoingBatch& batch, PublishStatus status,
            const std::string& error);
  // Gives all messages of a queue that are not in flight this result.
  void Stop(OutgoingQueue* queue, PublishStatus status, const std::string& error);
  // The batch is not waited for any longer.
  void End(OutgoingQueue* queue, const OutgoingBatch& batch);
  // Ends the messages whose deadline is over, until the first of which it is not.
  void Expire(OutgoingQueue* queue, TimePoint now);
  // Ends a batch of a topic that is down.
  void GiveUp(OutgoingQueue* queue, const OutgoingBatch& batch);

 private:
  void Refuse(OutgoingQueue* queue, OutgoingMessage* message);
  void Deliver(OutgoingQueue* queue, OutgoingMessage* message, PublishStatus status,
               const std::string& error);
  std::string GaveUp(const OutgoingBatch& batch) const;

  PublishHost* const host_;
  const Metering* const metering_;
  const std::chrono::milliseconds publish_timeout_;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PUBLISH_PUBLISH_RESULTS_H_

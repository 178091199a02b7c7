// Counts messages, requests and batches for the publications they belong to (publish_meter.h).
#ifndef POSTBOX_WORKER_PUBSUB_PUBLISH_METERING_H_
#define POSTBOX_WORKER_PUBSUB_PUBLISH_METERING_H_

#include <chrono>
#include <cstddef>

#include "extension/rules/publish_meter.h"
#include "worker/pubsub/publish/outgoing_batch.h"
#include "worker/pubsub/publish/sent_requests.h"

namespace postbox::pubsub {

class Metering {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // The meters that OutgoingMessage::meter counts from 1; null: nothing is counted.
  explicit Metering(PublishMeter* meters) : meters_(meters) {}

  // A request has ended with this status, OK if its messages are published. `left`: it was sent.
  void Answered(const SentRequest& request, int code, bool left, TimePoint now) const {
    if (meters_ == nullptr) return;
    const auto& messages = request.batch.messages;
    if (PublishMeter* meter = Of(*messages.front())) {
      meter->calls[StatusPlace(code)].Observe(Micros(now - request.sent_at));
    }
    // Neighbours are of one publication, mostly.
    for (std::size_t begin = 0, end = 0; begin < messages.size(); begin = end) {
      const auto of = messages[begin]->meter;
      while (end < messages.size() && messages[end]->meter == of) ++end;
      if (of == 0) continue;
      if (left) Add(&meters_[of - 1].sent, end - begin);
      if (code == 0) Add(&meters_[of - 1].published, end - begin);
    }
  }

  // A batch that was sent has its results.
  void Ended(const OutgoingBatch& batch, int code, TimePoint now) const {
    if (meters_ == nullptr || !batch.began) return;
    if (PublishMeter* meter = Of(*batch.messages.front())) {
      meter->operations[StatusPlace(code)].Observe(Micros(now - *batch.began));
    }
  }

 private:
  PublishMeter* Of(const OutgoingMessage& message) const {
    return message.meter == 0 ? nullptr : &meters_[message.meter - 1];
  }
  static std::int64_t Micros(TimePoint::duration duration) {
    return std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
  }

  PublishMeter* const meters_;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PUBLISH_METERING_H_

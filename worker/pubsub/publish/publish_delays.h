// What the publisher puts off to a later time: failed requests, until their backoff is over, and
// keys that the broker slows down, between two requests (request_pace.h).
//
// A request that is put off counts as busy, so that no message of its key overtakes it.
//
// Pure logic, without a clock.
#ifndef POSTBOX_WORKER_PUBSUB_PUBLISH_PUBLISH_DELAYS_H_
#define POSTBOX_WORKER_PUBSUB_PUBLISH_PUBLISH_DELAYS_H_

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "worker/pubsub/publish/outgoing_batch.h"
#include "worker/pubsub/publish/outgoing_queue.h"

namespace postbox::pubsub {

class PublishDelays {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  struct Retry {
    OutgoingQueue* queue;
    OutgoingBatch batch;
  };

  void RetryAt(TimePoint time, OutgoingQueue* queue, OutgoingBatch batch) {
    ++queue->busy;
    retries_.emplace(time, Retry{queue, std::move(batch)});
  }
  // Those whose backoff is over, earliest first.
  std::vector<Retry> TakeDue(TimePoint now) {
    return Take(retries_.upper_bound(now), [](const Retry&) { return true; });
  }
  // Those of a topic, or all, whatever their time.
  std::vector<Retry> TakeOf(const PublishTopic* topic) {
    return Take(retries_.end(),
                [topic](const Retry& retry) { return retry.queue->topic == topic; });
  }
  std::vector<Retry> TakeAll() {
    return Take(retries_.end(), [](const Retry&) { return true; });
  }

  // The queue sends nothing for as long as its pace says.
  void Pause(OutgoingQueue* queue, TimePoint now) {
    if (std::exchange(queue->paused, true)) return;
    pauses_.emplace(now + queue->pace->pause(), queue);
  }
  // The queues whose pause ended by then; they are not paused any more.
  std::vector<OutgoingQueue*> EndPauses(TimePoint now) {
    std::vector<OutgoingQueue*> ended;
    const auto end = pauses_.upper_bound(now);
    for (auto at = pauses_.begin(); at != end; ++at) {
      at->second->paused = false;
      ended.push_back(at->second);
    }
    pauses_.erase(pauses_.begin(), end);
    return ended;
  }

  // The earliest time of all, if there is anything.
  std::optional<TimePoint> NextTime() const {
    if (retries_.empty() && pauses_.empty()) return std::nullopt;
    return std::min(retries_.empty() ? TimePoint::max() : retries_.begin()->first,
                    pauses_.empty() ? TimePoint::max() : pauses_.begin()->first);
  }

 private:
  using Retries = std::multimap<TimePoint, Retry>;

  template <class Chosen>
  std::vector<Retry> Take(Retries::const_iterator end, Chosen chosen) {
    std::vector<Retry> taken;
    for (auto at = retries_.begin(); at != end;) {
      if (!chosen(at->second)) {
        ++at;
        continue;
      }
      --at->second.queue->busy;
      taken.push_back(std::move(at->second));
      at = retries_.erase(at);
    }
    return taken;
  }

  Retries retries_;
  std::multimap<TimePoint, OutgoingQueue*> pauses_;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PUBLISH_PUBLISH_DELAYS_H_

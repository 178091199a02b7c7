// A topic: its queues, which of them may send next, and whether it answers.
#ifndef POSTBOX_WORKER_PUBSUB_PUBLISH_PUBLISH_TOPIC_H_
#define POSTBOX_WORKER_PUBSUB_PUBLISH_PUBLISH_TOPIC_H_

#include <absl/container/flat_hash_map.h>

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "worker/pubsub/publish/outgoing_queue.h"
#include "worker/pubsub/publish/topic_health.h"

namespace postbox::pubsub {

// The queues of a topic that could send: first come, first served, but those whose next message is
// urgent have every other turn.
class QueueLine {
 public:
  bool empty() const { return urgent_.empty() && others_.empty(); }
  void Push(OutgoingQueue* queue) { (queue->IsUrgent() ? urgent_ : others_).push_back(queue); }
  OutgoingQueue* Pop() {
    was_urgent_ = !urgent_.empty() && (others_.empty() || !was_urgent_);
    std::deque<OutgoingQueue*>& line = was_urgent_ ? urgent_ : others_;
    OutgoingQueue* queue = line.front();
    line.pop_front();
    return queue;
  }
  std::deque<OutgoingQueue*> All() const {
    std::deque<OutgoingQueue*> all = urgent_;
    all.insert(all.end(), others_.begin(), others_.end());
    return all;
  }
  void Clear() {
    urgent_.clear();
    others_.clear();
  }

 private:
  std::deque<OutgoingQueue*> urgent_;
  std::deque<OutgoingQueue*> others_;
  bool was_urgent_ = false;  // the last one
};

struct PublishTopic {
  using TimePoint = std::chrono::steady_clock::time_point;

  explicit PublishTopic(std::string_view name) : name(name) {}
  const std::string name;
  // By key. The views refer to OutgoingQueue::key.
  absl::flat_hash_map<std::string_view, std::unique_ptr<OutgoingQueue>> queues;
  QueueLine ready;
  std::size_t in_flight = 0;  // requests
  std::size_t waiting = 0;    // of these, for a stream
  TopicHealth health;
  TimePoint retried_at;  // when the backoff of its failed requests was ended the last time

  std::size_t streams() const { return in_flight - waiting; }
  // While it is down, one request at a time is sent.
  bool MaySend(TimePoint now) const {
    return !health.down() || (in_flight == 0 && now >= health.next_probe());
  }

  // Makes it if there is none.
  OutgoingQueue* FindQueue(const std::string& key) {
    const auto at = queues.find(key);
    if (at != queues.end()) return at->second.get();
    auto made = std::make_unique<OutgoingQueue>();
    OutgoingQueue* queue = made.get();
    queue->topic = this;
    queue->key = key;
    queues.emplace(queue->key, std::move(made));
    return queue;
  }
  void EraseIfUnused(OutgoingQueue* queue) {
    if (queue->outstanding > 0 || queue->ready || queue->paused) return;
    queues.erase(queues.find(queue->key));
  }
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PUBLISH_PUBLISH_TOPIC_H_

// The queues of the publish scheduler: the messages of a key that wait, which key is next, and the
// queues of a topic.
#ifndef POSTBOX_WORKER_PUBSUB_PUBLISH_SCHEDULER_QUEUE_H_
#define POSTBOX_WORKER_PUBSUB_PUBLISH_SCHEDULER_QUEUE_H_

#include <absl/container/flat_hash_map.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/rules/limits.h"
#include "worker/pubsub/publish_scheduler.h"
#include "worker/pubsub/request_pace.h"
#include "worker/pubsub/topic_health.h"

namespace postbox::pubsub {

class PublishScheduler::Queue {
 public:
  Topic* topic = nullptr;
  std::string key;   // empty: without a key
  int channel = -1;  // of the last request; -1: none yet
  int max_busy = 1;  // without a key: not counting full requests

  std::vector<Batch> again;               // cut or put back: sent before `waiting`, from the back
  std::vector<OutgoingMessage*> waiting;  // from `begin` on
  std::size_t begin = 0;
  std::size_t urgent = 0;  // without a key: so many urgent ones come first
  int busy = 0;            // requests in flight or waiting for their next attempt
  bool ready = false;      // is in Topic::ready
  bool paused = false;     // is in paused_
  std::optional<RequestPace> pace;
  bool failed = false;          // of a key: all messages that are added are kBehind
  bool cancelling = false;      // of a key: what waits is cancelled when its request is answered
  std::size_t outstanding = 0;  // added and not taken yet

  bool keyed() const { return !key.empty(); }
  bool Waits() const { return begin < waiting.size(); }
  // Its next message.
  bool IsUrgent() const {
    return again.empty() ? Waits() && waiting[begin]->urgent
                         : again.back().messages.front()->urgent;
  }
  bool IsFull() const { return !keyed() && waiting.size() - begin >= kMaxRequestMessages; }
  bool CanSend() const {
    return !paused && (busy < max_busy || IsFull()) && (!again.empty() || Waits());
  }
  std::size_t MostBytes() const { return pace ? pace->most_bytes() : kMaxRequestBytes; }
  void Wait(OutgoingMessage* message) {
    if (keyed() || !message->urgent) {
      waiting.push_back(message);
    } else {
      waiting.insert(waiting.begin() + static_cast<std::ptrdiff_t>(begin + urgent++), message);
    }
  }
  OutgoingMessage* PopFront() {
    OutgoingMessage* message = waiting[begin];
    DropFront(1);
    return message;
  }
  void DropFront(std::size_t messages) {
    begin += messages;
    urgent -= std::min(urgent, messages);
    // On average each message is moved once, and at most half of the vector is unused.
    if (begin * 2 < waiting.size()) return;
    waiting.erase(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(begin));
    begin = 0;
  }
};

// The queues of a topic that could send.
class PublishScheduler::Line {
 public:
  bool empty() const { return urgent_.empty() && others_.empty(); }
  void Push(Queue* queue) { (queue->IsUrgent() ? urgent_ : others_).push_back(queue); }
  Queue* Pop() {
    was_urgent_ = !urgent_.empty() && (others_.empty() || !was_urgent_);
    std::deque<Queue*>& line = was_urgent_ ? urgent_ : others_;
    Queue* queue = line.front();
    line.pop_front();
    return queue;
  }
  std::deque<Queue*> All() const {
    std::deque<Queue*> all = urgent_;
    all.insert(all.end(), others_.begin(), others_.end());
    return all;
  }
  std::deque<Queue*> TakeAll() {
    std::deque<Queue*> all = All();
    urgent_.clear();
    others_.clear();
    return all;
  }

 private:
  std::deque<Queue*> urgent_;
  std::deque<Queue*> others_;
  bool was_urgent_ = false;  // the last one
};

struct PublishScheduler::Topic {
  explicit Topic(std::string_view name) : name(name) {}
  const std::string name;
  // By key. The views refer to Queue::key.
  absl::flat_hash_map<std::string_view, std::unique_ptr<Queue>> queues;
  Line ready;                 // the topic is in ready_ if there is any
  std::size_t in_flight = 0;  // requests
  std::size_t waiting = 0;    // of these, for a stream
  TopicHealth health;
  TimePoint retried_at;  // RetryNow()

  std::size_t streams() const { return in_flight - waiting; }
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PUBLISH_SCHEDULER_QUEUE_H_

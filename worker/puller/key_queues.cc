#include "worker/puller/key_queues.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace postbox::puller {
namespace {

// How many versions these are, with both. Messages may have any.
int64_t VersionsBetween(int64_t first, int64_t last) {
  if (last < first) return 1;
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  const uint64_t steps = static_cast<uint64_t>(last) - static_cast<uint64_t>(first);
  return static_cast<int64_t>(std::min(steps, kMost - 1) + 1);
}

}  // namespace

void KeyQueues::MakeReady(KeyQueue& queue, TimePoint now) {
  if (queue.waiting.front().suspect) {
    queue.state = KeyQueue::kReadySuspect;
    ready_suspects_.emplace_back(now, &queue);
    return;
  }
  queue.state = KeyQueue::kReady;
  ready_messages_ += queue.waiting.size();
  ready_.emplace_back(now, &queue);
}

void KeyQueues::Push(Delivery delivery, TimePoint now) {
  auto [it, is_new] = queues_.try_emplace(delivery.queue_key());
  KeyQueue& queue = it->second;
  if (queue.state == KeyQueue::kHeld) {
    ++held_messages_;
    held_bytes_ += delivery.bytes();
  }
  if (spare_.empty()) {
    queue.waiting.push_back(std::move(delivery));
  } else {
    spare_.front() = std::move(delivery);
    queue.waiting.splice(queue.waiting.end(), spare_, spare_.begin());
  }
  if (is_new) {
    MakeReady(queue, now);
  } else if (queue.state == KeyQueue::kReady) {
    ++ready_messages_;
  }
}

std::optional<KeyQueues::TimePoint> KeyQueues::ready_since() const {
  if (ready_.empty()) return std::nullopt;
  return ready_.front().first;
}

std::optional<KeyQueues::TimePoint> KeyQueues::suspect_since() const {
  if (ready_suspects_.empty()) return std::nullopt;
  return ready_suspects_.front().first;
}

Delivery KeyQueues::TakeFirst(KeyQueue* queue) {
  Delivery first = std::move(queue->waiting.front());
  if (spare_.size() < kMostSpare) {
    spare_.splice(spare_.begin(), queue->waiting, queue->waiting.begin());
  } else {
    queue->waiting.pop_front();
  }
  return first;
}

std::vector<Delivery> KeyQueues::TakeSuspect() {
  std::vector<Delivery> batch;
  KeyQueue& queue = *ready_suspects_.front().second;
  batch.push_back(TakeFirst(&queue));
  queue.state = KeyQueue::kBusy;
  ready_suspects_.pop_front();
  return batch;
}

std::vector<Delivery> KeyQueues::Take(size_t max_messages, size_t max_bytes) {
  std::vector<Delivery> batch;
  batch.reserve(std::min(max_messages, ready_messages_));
  size_t bytes = 0;
  bool full = false;
  while (!full && !ready_.empty()) {
    KeyQueue& queue = *ready_.front().second;
    size_t taken = 0;
    while (!queue.waiting.empty() && !queue.waiting.front().suspect) {
      Delivery& next = queue.waiting.front();
      full = batch.size() >= max_messages || (!batch.empty() && bytes + next.bytes() > max_bytes);
      if (full) break;
      bytes += next.bytes();
      batch.push_back(TakeFirst(&queue));
      ++taken;
    }
    if (taken == 0) break;  // the queue stays the first of ready_
    ready_messages_ -= taken + queue.waiting.size();
    queue.state = KeyQueue::kBusy;
    ready_.pop_front();
  }
  return batch;
}

void KeyQueues::Done(const std::string& queue_key, TimePoint now) {
  auto it = queues_.find(queue_key);
  if (it == queues_.end() || it->second.state != KeyQueue::kBusy) return;
  if (it->second.waiting.empty()) {
    queues_.erase(it);
  } else {
    MakeReady(it->second, now);
  }
}

void KeyQueues::PutBack(const std::string& queue_key, std::vector<Delivery> unsettled) {
  auto it = queues_.find(queue_key);
  if (it == queues_.end() || it->second.state != KeyQueue::kBusy) return;
  std::list<Delivery>& waiting = it->second.waiting;
  waiting.insert(waiting.begin(), std::make_move_iterator(unsettled.begin()),
                 std::make_move_iterator(unsettled.end()));
}

void KeyQueues::Fail(const std::string& queue_key, std::vector<Delivery> unsettled,
                     TimePoint retry_at) {
  auto it = queues_.find(queue_key);
  if (it == queues_.end() || it->second.state != KeyQueue::kBusy) return;
  PutBack(queue_key, std::move(unsettled));
  it->second.state = KeyQueue::kSuspended;
  suspended_.emplace(retry_at, queue_key);
}

void KeyQueues::Hold(const std::string& queue_key, std::vector<Delivery> unsettled) {
  auto it = queues_.find(queue_key);
  if (it == queues_.end() || it->second.state != KeyQueue::kBusy) return;
  PutBack(queue_key, std::move(unsettled));
  MakeHeld(it->second);
}

std::vector<std::string> KeyQueues::HoldFailed(std::string_view type) {
  std::vector<std::string> held;
  for (auto it = suspended_.begin(); it != suspended_.end();) {
    KeyQueue& queue = queues_.find(it->second)->second;
    if (queue.waiting.front().type() == type) {
      MakeHeld(queue);
      held.push_back(it->second);
      it = suspended_.erase(it);
    } else {
      ++it;
    }
  }
  return held;
}

void KeyQueues::MakeHeld(KeyQueue& queue) {
  queue.waiting.front().probe = false;
  queue.state = KeyQueue::kHeld;
  held_messages_ += queue.waiting.size();
  for (const Delivery& delivery : queue.waiting) held_bytes_ += delivery.bytes();
}

void KeyQueues::Unhold(const KeyQueue& queue) {
  held_messages_ -= queue.waiting.size();
  for (const Delivery& delivery : queue.waiting) held_bytes_ -= delivery.bytes();
}

void KeyQueues::Release(const std::string& queue_key, bool probe, TimePoint now) {
  auto it = queues_.find(queue_key);
  if (it == queues_.end() || it->second.state != KeyQueue::kHeld) return;
  Unhold(it->second);
  it->second.waiting.front().probe = probe;
  MakeReady(it->second, now);
}

bool KeyQueues::GiveBack(const std::string& queue_key, TimePoint retry_at) {
  auto it = queues_.find(queue_key);
  if (it == queues_.end() || it->second.state != KeyQueue::kHeld) return false;
  if (it->second.waiting.front().message.delivery_attempt > 0) return false;
  Unhold(it->second);
  it->second.state = KeyQueue::kSuspended;
  suspended_.emplace(retry_at, queue_key);
  return true;
}

std::vector<uint64_t> KeyQueues::TakeSuspended(TimePoint now) {
  std::vector<uint64_t> handles;
  while (!suspended_.empty() && suspended_.begin()->first <= now) {
    auto it = queues_.find(suspended_.begin()->second);
    for (const Delivery& delivery : it->second.waiting) handles.push_back(delivery.message.handle);
    queues_.erase(it);
    suspended_.erase(suspended_.begin());
  }
  return handles;
}

std::optional<KeyQueues::TimePoint> KeyQueues::NextRetry() const {
  if (suspended_.empty()) return std::nullopt;
  return suspended_.begin()->first;
}

std::map<std::string, WaitingEvents, std::less<>> KeyQueues::Waiting() const {
  std::map<std::string, WaitingEvents, std::less<>> all;
  for (const auto& [key, queue] : queues_) {
    const Delivery* first = nullptr;  // of one aggregate
    for (const Delivery& delivery : queue.waiting) {
      const ReceivedEvent& event = delivery.event;
      const std::string_view type = event.poison.empty() ? delivery.type() : "";
      auto it = all.find(type);
      if (it == all.end()) it = all.try_emplace(std::string(type)).first;
      WaitingEvents& waiting = it->second;
      ++waiting.events;
      waiting.oldest = std::min(waiting.oldest, delivery.message.publish_time);
      if (!event.version) continue;
      if (first == nullptr || first->event.aggregate_id != event.aggregate_id) first = &delivery;
      waiting.versions =
          std::max(waiting.versions, VersionsBetween(*first->event.version, *event.version));
    }
  }
  return all;
}

std::vector<uint64_t> KeyQueues::Drain() {
  std::vector<uint64_t> handles;
  for (auto it = queues_.begin(); it != queues_.end();) {
    for (const Delivery& delivery : it->second.waiting) handles.push_back(delivery.message.handle);
    it->second.waiting.clear();
    it = it->second.state == KeyQueue::kBusy ? std::next(it) : queues_.erase(it);
  }
  ready_.clear();
  ready_messages_ = 0;
  ready_suspects_.clear();
  suspended_.clear();
  held_messages_ = 0;
  held_bytes_ = 0;
  return handles;
}

}  // namespace postbox::puller

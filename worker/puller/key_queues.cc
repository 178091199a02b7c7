#include "worker/puller/key_queues.h"

#include <iterator>

namespace postbox::puller {

void KeyQueues::MakeReady(const std::string& queue_key, KeyQueue& queue, TimePoint now) {
  if (queue.waiting.front().suspect) {
    queue.state = KeyQueue::kReadySuspect;
    ready_suspects_.emplace_back(now, queue_key);
    return;
  }
  queue.state = KeyQueue::kReady;
  ready_messages_ += queue.waiting.size();
  ready_.emplace_back(now, queue_key);
}

void KeyQueues::Push(Delivery delivery, TimePoint now) {
  std::string queue_key = delivery.queue_key();
  auto [it, is_new] = queues_.try_emplace(queue_key);
  KeyQueue& queue = it->second;
  queue.waiting.push_back(std::move(delivery));
  if (is_new) {
    MakeReady(queue_key, queue, now);
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

std::vector<Delivery> KeyQueues::TakeSuspect() {
  std::vector<Delivery> batch;
  KeyQueue& queue = queues_.at(ready_suspects_.front().second);
  batch.push_back(std::move(queue.waiting.front()));
  queue.waiting.pop_front();
  queue.state = KeyQueue::kBusy;
  ready_suspects_.pop_front();
  return batch;
}

std::vector<Delivery> KeyQueues::Take(size_t max_messages, size_t max_bytes) {
  std::vector<Delivery> batch;
  size_t bytes = 0;
  bool full = false;
  while (!full && !ready_.empty()) {
    KeyQueue& queue = queues_.at(ready_.front().second);
    size_t taken = 0;
    while (!queue.waiting.empty() && !queue.waiting.front().suspect) {
      Delivery& next = queue.waiting.front();
      full = batch.size() >= max_messages || (!batch.empty() && bytes + next.bytes() > max_bytes);
      if (full) break;
      bytes += next.bytes();
      batch.push_back(std::move(next));
      queue.waiting.pop_front();
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
    MakeReady(queue_key, it->second, now);
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
  return handles;
}

}  // namespace postbox::puller

#include "worker/puller/key_queue.h"

#include <iterator>

namespace postbox::puller {

void KeyQueue::MakeReady(const std::string& name, Lane& lane, TimePoint now) {
  lane.state = Lane::kReady;
  ready_messages_ += lane.waiting.size();
  ready_.emplace_back(now, name);
}

void KeyQueue::Push(Delivery delivery, TimePoint now) {
  std::string name = delivery.lane();
  auto [it, is_new] = lanes_.try_emplace(name);
  Lane& lane = it->second;
  lane.waiting.push_back(std::move(delivery));
  if (is_new) {
    MakeReady(name, lane, now);
  } else if (lane.state == Lane::kReady) {
    ++ready_messages_;
  }
}

std::optional<KeyQueue::TimePoint> KeyQueue::ready_since() const {
  if (ready_.empty()) return std::nullopt;
  return ready_.front().first;
}

std::vector<Delivery> KeyQueue::Take(size_t max_messages, size_t max_bytes) {
  std::vector<Delivery> batch;
  size_t bytes = 0;
  bool full = false;
  while (!full && !ready_.empty()) {
    Lane& lane = lanes_.at(ready_.front().second);
    size_t taken = 0;
    while (!lane.waiting.empty()) {
      Delivery& next = lane.waiting.front();
      full = batch.size() >= max_messages || (!batch.empty() && bytes + next.bytes() > max_bytes);
      if (full) break;
      bytes += next.bytes();
      batch.push_back(std::move(next));
      lane.waiting.pop_front();
      ++taken;
    }
    if (taken == 0) break;  // the lane stays first in line
    ready_messages_ -= taken + lane.waiting.size();
    lane.state = Lane::kBusy;
    ready_.pop_front();
  }
  return batch;
}

void KeyQueue::Done(const std::string& name, TimePoint now) {
  auto it = lanes_.find(name);
  if (it == lanes_.end() || it->second.state != Lane::kBusy) return;
  if (it->second.waiting.empty()) {
    lanes_.erase(it);
  } else {
    MakeReady(name, it->second, now);
  }
}

void KeyQueue::Fail(const std::string& name, std::vector<Delivery> unsettled, TimePoint nack_at) {
  auto it = lanes_.find(name);
  if (it == lanes_.end() || it->second.state != Lane::kBusy) return;
  Lane& lane = it->second;
  lane.waiting.insert(lane.waiting.begin(), std::make_move_iterator(unsettled.begin()),
                      std::make_move_iterator(unsettled.end()));
  lane.state = Lane::kResting;
  lane.until = nack_at;
  resting_.emplace(nack_at, name);
}

std::vector<uint64_t> KeyQueue::TakeExpired(TimePoint now) {
  std::vector<uint64_t> handles;
  while (!resting_.empty() && resting_.begin()->first <= now) {
    auto it = lanes_.find(resting_.begin()->second);
    for (const Delivery& delivery : it->second.waiting) handles.push_back(delivery.message.handle);
    lanes_.erase(it);
    resting_.erase(resting_.begin());
  }
  return handles;
}

std::optional<KeyQueue::TimePoint> KeyQueue::NextExpiry() const {
  if (resting_.empty()) return std::nullopt;
  return resting_.begin()->first;
}

std::vector<uint64_t> KeyQueue::Drain() {
  std::vector<uint64_t> handles;
  for (auto it = lanes_.begin(); it != lanes_.end();) {
    for (const Delivery& delivery : it->second.waiting) handles.push_back(delivery.message.handle);
    it->second.waiting.clear();
    it = it->second.state == Lane::kBusy ? std::next(it) : lanes_.erase(it);
  }
  ready_.clear();
  ready_messages_ = 0;
  resting_.clear();
  return handles;
}

}  // namespace postbox::puller

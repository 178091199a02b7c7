#include "worker/puller/attempt_counter.h"

#include <utility>

namespace postbox::puller {

AttemptCounter::Attempts AttemptCounter::Increment(std::string_view message_id, bool own,
                                                   TimePoint now, ConsumerHealth::Mark mark,
                                                   ConsumerHealth::Mark counts_from) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto [it, is_new] = attempts_.try_emplace(std::string(message_id));
  if (is_new) it->second.place = order_.insert(order_.end(), it->first);
  Count& count = it->second.counts[own ? 0 : 1];
  if (count.mark < counts_from) count = {};
  const ConsumerHealth::Mark previous = std::exchange(count.mark, mark);
  if (++count.count == 1) {
    count.first = now;
    count.applied_before = applied_;
  }
  const Attempts attempts{count.count, count.first, applied_ > count.applied_before, previous};
  while (order_.size() > max_messages_) {
    attempts_.erase(order_.front());
    order_.pop_front();
  }
  known_ = attempts_.size();
  return attempts;
}

void AttemptCounter::Forget(std::string_view message_id) {
  if (known_ == 0) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = attempts_.find(std::string(message_id));
  if (it == attempts_.end()) return;
  order_.erase(it->second.place);
  attempts_.erase(it);
  known_ = attempts_.size();
}

bool AttemptCounter::Known(std::string_view message_id) {
  if (known_ == 0) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  return attempts_.contains(std::string(message_id));
}

}  // namespace postbox::puller

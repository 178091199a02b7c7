#include "worker/puller/consumer_health.h"

#include <algorithm>

namespace postbox::puller {

ConsumerHealth::Type* ConsumerHealth::Know(std::string_view type) {
  const auto known = types_.find(type);
  if (known != types_.end()) return &known->second;
  if (types_.size() >= kMostTypes) {
    const auto oldest =
        std::min_element(types_.begin(), types_.end(), [](const auto& one, const auto& other) {
          const bool suspended = one.second.suspension.has_value();
          if (suspended != other.second.suspension.has_value()) return !suspended;
          return one.second.last_failure < other.second.last_failure;
        });
    if (oldest->second.suspension) return nullptr;
    types_.erase(oldest);
  }
  any_ = true;
  return &types_[std::string(type)];
}

std::optional<ConsumerHealth::Suspension> ConsumerHealth::Settled(std::string_view type,
                                                                  bool effect, Mark begun,
                                                                  TimePoint now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto known = types_.find(type);
  if (known == types_.end()) return std::nullopt;
  Type& it = known->second;
  if (!effect) {
    // It was the probe perhaps, and has told nothing.
    if (it.suspension) it.next_probe = std::min(it.next_probe, now);
    return std::nullopt;
  }
  it.applied = std::max(it.applied, begun);
  it.failed.remove_if([begun](const FailedKey& failed) { return failed.mark < begun; });
  if (it.suspension && begun > it.suspended) {
    const std::optional<Suspension> ended = std::move(it.suspension);
    it.suspension.reset();
    it.failed.clear();
    it.resumed = ++clock_;
    return ended;
  }
  return std::nullopt;
}

ConsumerHealth::Verdict ConsumerHealth::Failed(const Failure& failure, TimePoint now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Verdict verdict{.mark = ++clock_};
  Type* type = failure.type.size() > kLongestName ? nullptr : Know(failure.type);
  if (type == nullptr) return verdict;
  const std::string_view key = failure.key.substr(0, kLongestName);
  verdict.applied = type->applied;
  verdict.counts_from = type->resumed;
  type->last_failure = verdict.mark;
  if (!type->suspension) {
    if (type->failed.empty()) type->failing_since = now;
    type->failed.remove_if([&](const FailedKey& failed) { return failed.key == key; });
    verdict.others = static_cast<size_t>(std::count_if(
        type->failed.begin(), type->failed.end(),
        [&](const FailedKey& failed) { return failed.sqlstate == failure.sqlstate; }));
    type->failed.push_back({std::string(key), std::string(failure.sqlstate), verdict.mark});
    if (type->failed.size() > kMostKeys) type->failed.pop_front();
    const bool broken = verdict.others >= kOtherKeys && now - type->failing_since >= times_.doubt;
    if (!broken && !failure.paused) return verdict;
    verdict.begins = true;
    type->suspension = {.type = std::string(failure.type), .since = now};
    type->suspended = verdict.mark;
    type->pause = std::min(times_.first_pause, kLongestPause);
    type->next_probe = now + type->pause;
    type->probing = false;
  } else if (type->probing) {
    type->probing = false;
    type->pause = std::min(type->pause * 2, kLongestPause);
    type->next_probe = now + type->pause;
  }
  type->suspension->sqlstate = failure.sqlstate;
  type->suspension->error = failure.error;
  verdict.suspended = true;
  verdict.retry_in =
      std::max(Milliseconds(0), std::chrono::duration_cast<Milliseconds>(type->next_probe - now));
  return verdict;
}

bool ConsumerHealth::IsEventsFault(const Verdict& verdict, Mark previous,
                                   TimePoint::duration failing_for) const {
  if (verdict.others >= kOtherKeys) return false;
  return (previous != 0 && verdict.applied > previous) || failing_for >= times_.evidence;
}

bool ConsumerHealth::Suspended(std::string_view type) const {
  if (Quiet()) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto known = types_.find(type);
  return known != types_.end() && known->second.suspension.has_value();
}

ConsumerHealth::TimePoint ConsumerHealth::NextProbe(std::string_view type) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto known = types_.find(type);
  const bool suspended = known != types_.end() && known->second.suspension.has_value();
  return suspended ? known->second.next_probe : TimePoint::min();
}

bool ConsumerHealth::TakeProbe(std::string_view type, TimePoint now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto known = types_.find(type);
  if (known == types_.end() || !known->second.suspension) return false;
  if (known->second.next_probe > now) return false;
  known->second.probing = true;
  // Unless its result comes first.
  known->second.next_probe = now + known->second.pause;
  return true;
}

std::vector<ConsumerHealth::Suspension> ConsumerHealth::Suspensions() const {
  std::vector<Suspension> suspensions;
  if (Quiet()) return suspensions;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [name, type] : types_) {
    if (type.suspension) suspensions.push_back(*type.suspension);
  }
  std::stable_sort(
      suspensions.begin(), suspensions.end(),
      [](const Suspension& one, const Suspension& other) { return one.since < other.since; });
  return suspensions;
}

}  // namespace postbox::puller

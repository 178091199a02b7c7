#include "worker/puller/parked_retry.h"

#include <algorithm>

namespace postbox::puller {

ParkedRetry::TimePoint ParkedRetry::Next() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return looking_ ? TimePoint::max() : next_;
}

bool ParkedRetry::Begin(TimePoint now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  looking_ = true;
  again_ = false;
  counting_ = now >= next_count_;
  if (counting_) since_ = 0;
  begun_ = now;
  return counting_;
}

std::optional<std::chrono::milliseconds> ParkedRetry::Done(const ParkedStep& step, TimePoint now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  looking_ = false;
  if (step.parked) {
    parked_ = *step.parked;
    next_count_ = now + std::max<std::chrono::steady_clock::duration>(
                            interval_, step.key ? interval_ : kShare * (now - begun_));
    CheckLimits();
  }
  if (!step.ok) {
    const auto delay = backoff_.Next();
    next_ = now + delay;
    return delay;
  }
  backoff_.Reset();
  if (step.key || again_) {
    next_ = now;
  } else {
    next_ = now + (parked_.keys > 0 || since_ > 0 ? interval_ : kIdleInterval);
  }
  return std::nullopt;
}

void ParkedRetry::Parked(int64_t events, TimePoint now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!most_ || events == 0) return;
  since_ += events;
  again_ = looking_;
  next_ = std::min(next_, now + interval_);
  CheckLimits();
}

std::string ParkedRetry::OverLimit() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return over_;
}

void ParkedRetry::CheckLimits() {
  if (!most_) return;
  struct Limit {
    const char* name;
    int64_t most, parked;
  };
  const Limit limits[] = {{"max_parked_keys", most_->keys, parked_.keys},
                          {"max_parked_events", most_->events, parked_.events + since_},
                          {"max_parked_bytes", most_->bytes, parked_.bytes}};
  bool room = true;
  for (const auto& [name, most, parked] : limits) {
    room = room && parked < most - most / 10;
    if (parked < most) continue;
    over_ = std::string(name) + " is reached: " + std::to_string(parked_.events + since_) +
            " events of parked keys wait in postbox.dead_letter";
    return;
  }
  if (room) over_.clear();
}

}  // namespace postbox::puller

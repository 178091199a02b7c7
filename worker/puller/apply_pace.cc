#include "worker/puller/apply_pace.h"

#include <algorithm>

namespace postbox::puller {

void ApplyPace::Committed(size_t events, int running, Duration took, TimePoint now) {
  if (now - took - last_commit_ > kWindow) busy_since_ = now - took;
  last_commit_ = now;
  if (running < width_) {
    measuring_ = false;
    // Trials that nothing is learned from do not make rests longer: a burst may follow.
    if (on_trial() && now - trial_begin_ >= kLongestTrial) {
      width_ = before_;
      Rest(kFirstRest, now);
    }
    return;
  }
  if (!measuring_) {
    measuring_ = true;
    wanted_ = false;
    window_begin_ = now;
    window_events_ = 0;
    window_commits_ = 0;
    return;
  }
  window_events_ += events;
  ++window_commits_;
  const Duration window = now - window_begin_;
  if (window < kWindow || window_commits_ < kCommits * width_) return;
  measuring_ = false;
  Judge(static_cast<double>(window_events_) / std::chrono::duration<double>(window).count(), now);
}

void ApplyPace::Judge(double rate, TimePoint now) {
  if (!on_trial()) {
    rate_ = rate;
    return MaybeTry(now);
  }
  if (rate >= rate_ * (width_ > before_ ? kGain : kAboutAsFast)) {
    rate_ = rate;
    rest_ = kFirstRest;
    Rest(rest_, now);
  } else {
    width_ = before_;
    Rest(std::min<Duration>(rest_ * 2, kLongestRest), now);
  }
}

void ApplyPace::MaybeTry(TimePoint now) {
  if (now < rest_until_ || now - busy_since_ < kSteady) return;
  const bool narrower = width_ > 1 && (width_ == most_ || trials_ % 4 == 3);
  if (!narrower && (width_ == most_ || !wanted_)) return;
  before_ = width_;
  width_ = narrower ? width_ / 2 : std::min(width_ * 2, most_);
  ++trials_;
  trial_begin_ = now;
}

void ApplyPace::Conflicted(TimePoint now) {
  width_ = on_trial() ? std::min(before_, width_) : std::max(1, width_ / 2);
  Rest(std::clamp<Duration>(rest_ * 2, kRestAfterConflict, kLongestRest), now);
}

void ApplyPace::Rest(Duration time, TimePoint now) {
  before_ = 0;
  measuring_ = false;
  rest_ = time;
  rest_until_ = now + time;
}

}  // namespace postbox::puller

// How the time is divided in which a subscription ends.
//
//   - Until apply_until() the appliers apply what the puller holds.
//   - The rest, half of the time and 2 to 5 s, is for what is left then: the statements that still
//     run are cancelled, the last acks and nacks are sent, and the report is removed, each in its
//     part of that. What remains is for the ends of threads.
//   - The end can be moved forward, and never back.
//
// No threads; the time is passed in.
#ifndef POSTBOX_WORKER_PULLER_END_TIMES_H_
#define POSTBOX_WORKER_PULLER_END_TIMES_H_

#include <algorithm>
#include <chrono>

#include "worker/puller/failpoint.h"

namespace postbox::puller {

class EndTimes {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;
  static constexpr std::chrono::seconds kLeastClosing{2};
  static constexpr std::chrono::seconds kMostClosing{5};

  // All is over at `end`, or kLeastClosing from now if that is later. False if it is to be over
  // before that anyway.
  bool EndBy(TimePoint end, TimePoint now) {
    if (end >= end_) return false;
    end_ = end;
    closing_ =
        std::clamp<Duration>((end - now) / 2, TimeOf("closing_time", kLeastClosing), kMostClosing);
    return true;
  }

  TimePoint apply_until() const { return end_ - closing_; }
  // For the end of the statements that are cancelled.
  Duration cancel_time() const { return closing_ * 25 / 100; }
  // For the last acks and nacks.
  Duration settle_time() const { return closing_ * 35 / 100; }
  // For the removal of the report.
  Duration report_time() const { return closing_ * 10 / 100; }

 private:
  TimePoint end_ = TimePoint::max();
  Duration closing_{0};
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_END_TIMES_H_

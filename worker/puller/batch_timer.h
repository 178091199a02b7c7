// When a batch that is not full begins.
//
//   - After a pause at once: the first event of a burst, or one that comes alone, does not wait.
//   - Otherwise batch_delay after the batch before it began, so that a steady stream of few events
//     makes few transactions. It waits for no longer than batch_delay in any case.
//
// No threads; the time is passed in.
#ifndef POSTBOX_WORKER_PULLER_BATCH_TIMER_H_
#define POSTBOX_WORKER_PULLER_BATCH_TIMER_H_

#include <algorithm>
#include <chrono>

namespace postbox::puller {

class BatchTimer {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  explicit BatchTimer(std::chrono::milliseconds delay) : delay_(delay) {}

  // When the batch begins whose first event has been ready since then.
  TimePoint Due(TimePoint ready_since, bool full) const {
    if (full) return ready_since;
    return std::max(ready_since, std::min(ready_since, last_) + delay_);
  }
  void Begun(TimePoint now) { last_ = now; }

 private:
  const std::chrono::milliseconds delay_;
  TimePoint last_ = TimePoint::min();
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_BATCH_TIMER_H_

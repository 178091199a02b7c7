// When the next report on a subscription is due.
//
//   - kInterval after the last one, if something has changed since;
//   - kSignOfLife after it, if nothing has;
//   - if it was not stored, kInterval after it, and then later each time, up to kLongestPause,
//     whatever changes meanwhile. Each attempt is an error in the log of the server.
//
// No threads; the time is passed in.
#ifndef POSTBOX_WORKER_PULLER_REPORT_TIMER_H_
#define POSTBOX_WORKER_PULLER_REPORT_TIMER_H_

#include <algorithm>
#include <chrono>
#include <utility>

#include "worker/puller/failpoint.h"

namespace postbox::puller {

class ReportTimer {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds kInterval{1};
  static constexpr std::chrono::minutes kSignOfLife{5};
  static constexpr std::chrono::minutes kLongestPause{1};

  TimePoint Next() const {
    if (disabled_) return TimePoint::max();
    if (not_stored_) return reported_ + pause_;
    return reported_ + (changed_ ? interval_ : kSignOfLife);
  }
  void Changed() { changed_ = true; }
  // A report is made, of all that has changed.
  void Reported(TimePoint now) {
    changed_ = false;
    reported_ = now;
    pause_ = std::exchange(not_stored_, false)
                 ? std::min<std::chrono::milliseconds>(2 * pause_, kLongestPause)
                 : interval_;
  }
  // The last report did not get through.
  void NotStored() { not_stored_ = true; }
  // There will be no more reports.
  void Disable() { disabled_ = true; }

 private:
  bool changed_ = true;      // the first report says that the puller is there
  bool not_stored_ = false;  // the last report
  bool disabled_ = false;
  TimePoint reported_{};
  const std::chrono::milliseconds interval_ = TimeOf("report_interval", kInterval);
  std::chrono::milliseconds pause_ = interval_;  // after it, if it is not stored
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_REPORT_TIMER_H_

// How long an answer takes when it waits in no line (request_window.h), and when that is to be
// measured again. Pure logic, without a clock.
#ifndef POSTBOX_WORKER_PUBSUB_PUBLISH_ROUND_TRIP_BASE_H_
#define POSTBOX_WORKER_PUBSUB_PUBLISH_ROUND_TRIP_BASE_H_

#include <chrono>

namespace postbox::pubsub {

class RoundTripBase {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::duration<double>;

  static constexpr std::chrono::seconds kValid{15};
  static constexpr double kAveraged = 16;  // answers

  bool known() const { return time_ > Duration::zero(); }
  Duration time() const { return time_; }
  // 0: that was not measured lately.
  Duration TimeAt(TimePoint now) const {
    return now < measured_at_ + kValid ? time_ : Duration::zero();
  }
  bool IsDue(TimePoint now) const { return now >= due_; }

  // A request that had no line before it took so long.
  void Average(Duration took, TimePoint now) {
    Set(known() ? time_ + (took - time_) / kAveraged : took, now);
  }
  // It was measured.
  void Set(Duration time, TimePoint now) {
    time_ = time;
    measured_at_ = now;
    due_ = now + kValid;
  }
  // It could not be measured; this is used if nothing is known.
  void Assume(Duration time) {
    if (!known()) time_ = time;
  }
  void MeasureAt(TimePoint time) { due_ = time; }

 private:
  Duration time_{0};
  TimePoint measured_at_;
  TimePoint due_;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PUBLISH_ROUND_TRIP_BASE_H_

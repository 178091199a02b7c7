// A probe of the round trip: few requests only, until kAnswers of them are answered.
//
// Requests of before may never be answered, those of a connection that is lost, say. So a probe
// that takes much longer than the round before is given up, and is repeated kAgain later. Each one
// that is given up in a row doubles both. Pure logic, without a clock.
#ifndef POSTBOX_WORKER_PUBSUB_PUBLISH_ROUND_TRIP_PROBE_H_
#define POSTBOX_WORKER_PUBSUB_PUBLISH_ROUND_TRIP_PROBE_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace postbox::pubsub {

class RoundTripProbe {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::duration<double>;

  static constexpr std::size_t kAnswers = 16;
  static constexpr std::chrono::seconds kAgain{5};
  static constexpr std::chrono::milliseconds kShortest{200};
  static constexpr std::chrono::seconds kLongest{4};
  static constexpr int kMostDoublings = 3;

  struct Result {
    Duration median;
    Duration quickest;
  };

  bool running() const { return running_; }
  TimePoint until() const { return until_; }

  // `mean`: of the answers of the round before.
  void Start(Duration mean, TimePoint now) {
    running_ = true;
    times_.clear();
    const auto patience =
        std::min<Duration>(std::max<Duration>(4 * mean, kShortest) * (1 << given_up_), kLongest);
    until_ = now + std::chrono::duration_cast<TimePoint::duration>(patience);
  }
  // True: there are enough answers, and the probe has ended.
  bool Add(Duration took) {
    times_.push_back(took);
    if (times_.size() < kAnswers) return false;
    running_ = false;
    given_up_ = 0;
    return true;
  }
  // Of the probe that has ended.
  Result TakeResult() {
    const auto middle = times_.begin() + static_cast<std::ptrdiff_t>(times_.size() / 2);
    std::nth_element(times_.begin(), middle, times_.end());
    return {*middle, *std::min_element(times_.begin(), times_.end())};
  }
  // Ends it. Returns how long to wait for the next one.
  std::chrono::seconds GiveUp() {
    running_ = false;
    const auto pause = kAgain * (1 << given_up_);
    given_up_ = std::min(given_up_ + 1, kMostDoublings);
    return pause;
  }

 private:
  bool running_ = false;
  std::vector<Duration> times_;
  TimePoint until_;
  int given_up_ = 0;  // in a row
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PUBLISH_ROUND_TRIP_PROBE_H_

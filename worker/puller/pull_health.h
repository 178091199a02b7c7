// What a probe of the process is told: /livez and /readyz. The main thread says at each turn what
// it has found (liveness.h), and by when it will turn again. Thread-safe; the time is passed in.
//
//   - Alive: the main loop turns, and no thread is stuck. A restart of the process helps where it
//     is not, and only there.
//   - Ready: the configuration was read, the database and the stream are connected. A subscription
//     that is paused needs no stream. A backlog does not matter.
#ifndef POSTBOX_WORKER_PULLER_PULL_HEALTH_H_
#define POSTBOX_WORKER_PULLER_PULL_HEALTH_H_

#include <chrono>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace postbox::puller {

class PullHealth {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Lines = std::vector<std::string>;

  // The main loop will turn again by then.
  void TurnsBy(TimePoint due, TimePoint now) {
    const std::lock_guard<std::mutex> lock(mutex_);
    due_ = due;
    turned_at_ = now;
  }
  void Found(Lines stuck, Lines not_ready) {
    const std::lock_guard<std::mutex> lock(mutex_);
    stuck_ = std::move(stuck);
    not_ready_ = std::move(not_ready);
  }

  // Why it is not alive, or not ready; none: it is.
  Lines NotAlive(TimePoint now) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    Lines lines = stuck_;
    if (now > due_) {
      const auto still = std::chrono::duration_cast<std::chrono::seconds>(now - turned_at_);
      lines.push_back("the main loop has not turned for " + std::to_string(still.count()) + " s");
    }
    return lines;
  }
  Lines NotReady() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return not_ready_;
  }

 private:
  mutable std::mutex mutex_;
  TimePoint due_ = TimePoint::max();
  TimePoint turned_at_{};
  Lines stuck_;
  Lines not_ready_{"the configuration has not been read"};
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_PULL_HEALTH_H_

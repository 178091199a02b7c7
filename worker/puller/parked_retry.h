// When a puller retries the parked keys of its inbox, and whether too much is parked.
//
// The inbox has the keys and knows which are due (extension/apply/parked_keys.h). One applier at a
// time looks, and retries the key that has been due for longest:
//
//   - A look that finds a key that is due is followed by the next one at once, so that a long key
//     is worked off in steps, between which other keys have their turns. With one applier, live
//     events have a turn after each step (applier_schedule.h).
//   - Otherwise the next look is kInterval later, as long as keys are parked: one may become due,
//     or what another puller parks may reach a limit. If nothing is parked it is kIdleInterval
//     later, or as soon as this puller parks an event.
//   - To count what is parked takes time if it is much. It is counted at most every kInterval, and
//     so seldom that it takes at most a kShare of the time.
//   - A look that fails is repeated with backoff.
//
// At a limit the subscription pauses: it takes no messages until less than nine tenths of each
// limit are parked. What it has parked since the last count counts too.
//
// Thread-safe; the time is passed in.
#ifndef POSTBOX_WORKER_PULLER_PARKED_RETRY_H_
#define POSTBOX_WORKER_PULLER_PARKED_RETRY_H_

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "extension/rules/backoff.h"
#include "worker/puller/failpoint.h"

namespace postbox::puller {

struct ParkedAmount {
  int64_t keys = 0;
  int64_t events = 0;
  int64_t bytes = 0;
  bool operator==(const ParkedAmount&) const = default;
};

// What one look has found and done.
struct ParkedStep {
  bool ok = false;
  std::optional<std::string> key{};      // that was due
  std::optional<ParkedAmount> parked{};  // if it was counted
  int64_t applied = 0;
  int64_t without_effect = 0;
  // If not ok: of the statement. Else of the event that has stopped the key; empty if none has.
  std::string sqlstate{};
  std::string error{};
};

class ParkedRetry {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::milliseconds kInterval{1000};
  static constexpr std::chrono::seconds kIdleInterval{30};
  static constexpr int kShare = 20;
  static constexpr pubsub::BackoffPolicy kBackoff{std::chrono::seconds(1), 2.0,
                                                  std::chrono::seconds(30)};

  // `most`: nothing if the subscription parks no keys; then there is never a look. `over`: what
  // OverLimit returns until the first look has counted.
  ParkedRetry(std::optional<ParkedAmount> most, const std::string& over)
      : most_(most), paused_for_(most ? over : ""), over_(paused_for_) {
    if (most_) next_ = TimePoint();
  }

  // When the next look is due. Never while one is under way.
  TimePoint Next() const;
  // One begins. True if it is to count.
  bool Begin(TimePoint now);
  // Returns the delay after which one that failed is repeated.
  std::optional<std::chrono::milliseconds> Done(const ParkedStep& step, TimePoint now);
  // Events were parked.
  void Parked(int64_t events, TimePoint now);

  // Which limit is reached; empty if none is. Once it is, until there is room again.
  std::string OverLimit() const;
  // What it was at first: with a limit nothing is received (runner.h).
  const std::string& paused_for() const { return paused_for_; }

 private:
  // With mutex_ held.
  void CheckLimits();

  const std::optional<ParkedAmount> most_;
  const std::string paused_for_;
  const std::chrono::milliseconds interval_ = TimeOf("parked_interval", kInterval);
  mutable std::mutex mutex_;
  TimePoint next_ = TimePoint::max();
  bool looking_ = false;
  bool again_ = false;  // something was parked during a look
  bool counting_ = false;
  TimePoint begun_{};
  TimePoint next_count_{};
  ParkedAmount parked_;  // at the last count
  int64_t since_ = 0;    // events that were parked after it began
  std::string over_;
  pubsub::Backoff backoff_{kBackoff};
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_PARKED_RETRY_H_

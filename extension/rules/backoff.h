// The exponential backoff of Postbox: min(cap, base * factor^(attempt - 1)), with jitter.
//
// Plain header: standard library only. It is used for retries of an RPC, for reconnects, for the
// retry time of a row, and for nacks. Jitter multiplies the delay by a random number from 1/2 to 1,
// so that what failed at the same time is not tried again at the same time.

#ifndef POSTBOX_EXTENSION_RULES_BACKOFF_H_
#define POSTBOX_EXTENSION_RULES_BACKOFF_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <utility>

namespace postbox::pubsub {

struct BackoffPolicy {
  std::chrono::milliseconds base;
  double factor;
  std::chrono::milliseconds cap;
  bool operator==(const BackoffPolicy&) const = default;
};

// Publish: the official clients begin with 100 ms and multiply by 1.3 to 4, up to 60 s. With the
// smallest factor a broker that is back is noticed soonest.
inline constexpr BackoffPolicy kPublishBackoff{std::chrono::milliseconds(100), 1.3,
                                               std::chrono::seconds(60)};
// Reconnect of a stream or a database connection: 100 ms, doubled up to 10 s.
inline constexpr BackoffPolicy kReconnectBackoff{std::chrono::milliseconds(100), 2.0,
                                                 std::chrono::seconds(10)};
// Retry of an exactly-once ack: 1 s, doubled up to 64 s.
inline constexpr BackoffPolicy kAckBackoff{std::chrono::seconds(1), 2.0, std::chrono::seconds(64)};

// The delay before try number attempt + 1. `attempt` is the number of failures so far, from 1. It
// may have any value: the power may overflow to infinity, which is above the cap. `random` is in
// [0, 1].
inline std::chrono::milliseconds BackoffDelay(const BackoffPolicy& policy, int attempt,
                                              double random) {
  const auto base = static_cast<double>(policy.base.count());
  const auto cap = static_cast<double>(policy.cap.count());
  const double grown = base * std::pow(policy.factor, std::max(attempt, 1) - 1);
  const double delay = std::min(cap, grown) * (0.5 + 0.5 * std::clamp(random, 0.0, 1.0));
  return std::chrono::milliseconds(std::max<std::int64_t>(std::llround(delay), 0));
}

// A random number in [0, 1) for jitter. Its quality does not matter. It takes no lock and cannot
// fail.
inline double JitterRandom() {
  static std::atomic<std::uint64_t> state{
      static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count())};
  std::uint64_t x = state.fetch_add(0x9E3779B97F4A7C15ULL, std::memory_order_relaxed);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  x ^= x >> 31;
  return static_cast<double>(x >> 11) * 0x1.0p-53;
}

// Counts consecutive failures and gives the delay after each.
class Backoff {
 public:
  explicit Backoff(BackoffPolicy policy, std::function<double()> random = JitterRandom)
      : policy_(policy), random_(std::move(random)) {}

  std::chrono::milliseconds Next() { return BackoffDelay(policy_, ++attempts_, random_()); }
  void Reset() { attempts_ = 0; }
  int attempts() const { return attempts_; }

 private:
  BackoffPolicy policy_;
  std::function<double()> random_;
  int attempts_ = 0;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_EXTENSION_RULES_BACKOFF_H_

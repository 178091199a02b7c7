// Time as the policies see it. They have no clock: what a policy decides at a moment is a function
// of that moment, so a test turns the clock, and the server passes its TimestampTz.
#ifndef POSTBOX_WORKER_PUBLISHER_POLICY_MOMENT_H_
#define POSTBOX_WORKER_PUBLISHER_POLICY_MOMENT_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>

#include "extension/rules/backoff.h"

namespace postbox::publisher {

// Microseconds of a clock. 0 lies before everything, kNever behind everything.
using Moment = std::int64_t;
inline constexpr Moment kNever = std::numeric_limits<Moment>::max();

// Of a clock that is never set.
inline Moment ToMoment(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count();
}
inline Moment SteadyNow() { return ToMoment(std::chrono::steady_clock::now()); }

constexpr Moment After(Moment from, std::chrono::milliseconds delay) {
  return from + std::chrono::microseconds(delay).count();
}

constexpr std::chrono::milliseconds Between(Moment begin, Moment end) {
  return std::chrono::milliseconds((end - begin) / 1000);
}

// The constants of the policies last as long as they say, or a part of that: postbox.time_scale.
struct TimeScale {
  int percent = 100;

  constexpr std::chrono::milliseconds operator()(std::chrono::milliseconds time) const {
    return std::max(time * percent / 100, std::chrono::milliseconds(1));
  }
  constexpr pubsub::BackoffPolicy operator()(const pubsub::BackoffPolicy& policy) const {
    return {(*this)(policy.base), policy.factor, (*this)(policy.cap)};
  }
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_POLICY_MOMENT_H_

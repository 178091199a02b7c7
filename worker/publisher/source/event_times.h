// When an event may be sent: not before its deliver_at, and not from its expires_at on. The clock
// of the database server decides, at the moment when the event is read; of an event that then waits
// to be sent, the end of its time is looked at again.
//
// An event that is read too early is parked until its time, and what follows of its key waits
// behind it. One that is read too late is settled without being sent.
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_EVENT_TIMES_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_EVENT_TIMES_H_

#include <chrono>
#include <cstdint>
#include <limits>

namespace postbox::publisher {

// In microseconds since 1970.
struct EventTimes {
  std::int64_t deliver_at = std::numeric_limits<std::int64_t>::min();
  std::int64_t expires_at = std::numeric_limits<std::int64_t>::max();

  bool expires() const { return expires_at != std::numeric_limits<std::int64_t>::max(); }
  bool any() const { return expires() || deliver_at != std::numeric_limits<std::int64_t>::min(); }
};

enum class Timeliness { kInTime, kTooEarly, kTooLate };

// One that expires before its time comes is too late at once.
constexpr Timeliness TimelinessOf(const EventTimes& times, std::int64_t now) {
  if (times.expires_at <= now || times.expires_at <= times.deliver_at) return Timeliness::kTooLate;
  return times.deliver_at > now ? Timeliness::kTooEarly : Timeliness::kInTime;
}

// Until when an event that is in time may wait to be sent, by a clock that is not set.
inline std::chrono::steady_clock::time_point SendUntil(
    const EventTimes& times, std::int64_t now, std::chrono::steady_clock::time_point steady_now) {
  using std::chrono::steady_clock;
  constexpr std::int64_t kLongest = std::int64_t{366} * 86'400 * 1'000'000;
  if (!times.expires() || times.expires_at - now > kLongest) return steady_clock::time_point::max();
  return steady_now + std::chrono::duration_cast<steady_clock::duration>(
                          std::chrono::microseconds(times.expires_at - now));
}

// How many seconds from `now` until an event that is too early may be sent.
constexpr double SecondsUntil(const EventTimes& times, std::int64_t now) {
  return times.deliver_at <= now ? 0 : static_cast<double>(times.deliver_at - now) / 1'000'000;
}

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_EVENT_TIMES_H_

// Which leases must be extended, when, and by how much.
//
// Pub/Sub lends a message for an ack deadline; whoever works longer must ask for more time before
// it is over, or the message is delivered again while it is still worked on. The rules:
//   - a lease is extended `kMargin` before its deadline, by the 99th percentile of how long
//     messages took from delivery to their ack, within kMinExtension..kMaxExtension (the API's own
//     range); under exactly-once delivery by 60 s at least, because there an expired lease makes
//     the ack fail;
//   - after kMaxHold a message is given up: it is somebody else's turn, this consumer hangs;
//   - leases that fall due within a second of each other are extended together.
// Pure logic: the caller passes the time in. Not thread-safe; lives on the I/O thread.

#ifndef POSTBOX_WORKER_PUBSUB_LEASE_KEEPER_H_
#define POSTBOX_WORKER_PUBSUB_LEASE_KEEPER_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "proto/rules/limits.h"

namespace postbox::pubsub {

class LeaseKeeper {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Seconds = std::chrono::seconds;

  // Deadline that the stream asks for, and the extension until anything has been measured.
  static constexpr Seconds kStreamDeadline{60};
  static constexpr Seconds kMargin{5};
  static constexpr Seconds kMinExtension{kMinAckDeadlineSeconds};
  static constexpr Seconds kMinExactlyOnceExtension{kMinExactlyOnceAckDeadlineSeconds};
  static constexpr Seconds kMaxExtension{kMaxAckDeadlineSeconds};
  static constexpr std::chrono::minutes kMaxHold{60};

  struct Due {
    std::vector<uint64_t> extend;   // ask for Extension() more
    std::vector<uint64_t> give_up;  // no longer kept; they will be delivered again
  };

  void set_exactly_once(bool on) { exactly_once_ = on; }

  // A message arrived; its receipt is confirmed with a deadline of Extension() from now on.
  void Add(uint64_t handle, TimePoint now);
  // The consumer is done with a message after holding it that long: feeds the percentile.
  void Record(TimePoint received, TimePoint now);
  // Nothing more to keep: settled, nacked or given up.
  void Remove(uint64_t handle);

  // By how much a lease is extended now.
  Seconds Extension() const;
  // When TakeDue has something to say next.
  std::optional<TimePoint> NextDue() const;
  // What is due. Extended leases are assumed to run until now + Extension().
  Due TakeDue(TimePoint now);

  size_t size() const { return leases_.size(); }

 private:
  struct Lease {
    TimePoint received;
    TimePoint due;
  };

  void Schedule(uint64_t handle, Lease& lease, TimePoint now);

  bool exactly_once_ = false;
  std::unordered_map<uint64_t, Lease> leases_;
  std::set<std::pair<TimePoint, uint64_t>> by_due_;
  // Ack times in whole seconds, rounded up; the last bucket holds everything longer.
  std::array<uint32_t, 601> ack_times_{};
  uint64_t ack_time_count_ = 0;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_LEASE_KEEPER_H_

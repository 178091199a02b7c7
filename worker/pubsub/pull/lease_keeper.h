// Which leases must be extended, when, and by how much.
//
// Pub/Sub leases a message until its ack deadline. A consumer that needs longer must extend the
// lease in time. Otherwise the message is delivered again while it is still being processed. The
// rules:
//   - A lease is extended kMargin before its deadline. The extension is the 99th percentile of the
//     time from delivery to ack, within kMinExtension..kMaxExtension, which is the range of the
//     API. Under exactly-once delivery it is at least 60 s, because there an expired lease makes
//     the ack fail.
//   - The receipt of a message is confirmed kReceiptDelay after it came, which is its first
//     extension. Most are settled by then and cost nothing. Until then the deadline of the stream
//     holds. Under exactly-once delivery the caller confirms it at once.
//   - After kMaxHold a message is given up: this consumer hangs, and another one should get it.
//   - Leases that are due within a second of each other are extended together.
//
// Pure logic: the caller passes the time. Not thread-safe; for the I/O thread.

#ifndef POSTBOX_WORKER_PUBSUB_PULL_LEASE_KEEPER_H_
#define POSTBOX_WORKER_PUBSUB_PULL_LEASE_KEEPER_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "proto/rules/limits.h"

namespace postbox::pubsub {

class LeaseKeeper {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Seconds = std::chrono::seconds;

  // The deadline that the stream asks for, and the extension until the first ack was measured.
  static constexpr Seconds kStreamDeadline{60};
  static constexpr Seconds kMargin{5};
  static constexpr Seconds kMinExtension{kMinAckDeadlineSeconds};
  static constexpr Seconds kMinExactlyOnceExtension{kMinExactlyOnceAckDeadlineSeconds};
  static constexpr Seconds kMaxExtension{kMaxAckDeadlineSeconds};
  static constexpr std::chrono::minutes kMaxHold{60};
  static constexpr std::chrono::milliseconds kReceiptDelay{100};

  struct Due {
    std::vector<uint64_t> extend;   // to be extended by Extension()
    std::vector<uint64_t> give_up;  // no longer extended; they will be delivered again
  };

  void set_exactly_once(bool on) { exactly_once_ = on; }

  // A message arrived.
  void Add(uint64_t handle, TimePoint now);
  // Its receipt is confirmed with a deadline of Extension() from now.
  void AddConfirmed(uint64_t handle, TimePoint now);
  // The consumer acked a message that was received at that time. Feeds the percentile.
  void Record(TimePoint received, TimePoint now);
  // The message is settled, nacked or given up.
  void Remove(uint64_t handle);

  // The time by which a lease is extended now.
  Seconds Extension() const;
  // The time at which TakeDue should be called next.
  std::optional<TimePoint> NextDue() const;
  // The leases that are due. Those in `extend` are assumed to last until now + Extension().
  // `is_held`: whether a message that was added is neither settled, nor nacked, nor given up.
  Due TakeDue(TimePoint now, absl::FunctionRef<bool(uint64_t handle)> is_held);

  // Of the messages whose receipt was confirmed.
  size_t size() const { return leases_.size(); }

 private:
  struct Lease {
    TimePoint received;
    TimePoint due;
  };

  void Schedule(uint64_t handle, Lease& lease, TimePoint now);
  void TakeReceipts(TimePoint now, absl::FunctionRef<bool(uint64_t handle)> is_held, Due* due);

  bool exactly_once_ = false;
  // Whose receipt is not confirmed yet, in order of arrival; what was settled meanwhile, too.
  std::deque<std::pair<TimePoint, uint64_t>> received_;
  std::unordered_map<uint64_t, Lease> leases_;
  std::set<std::pair<TimePoint, uint64_t>> by_due_;
  // Numbers of acks by their time in whole seconds, rounded up. The last bucket holds all longer
  // times.
  std::array<uint32_t, 601> ack_times_{};
  uint64_t ack_time_count_ = 0;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PULL_LEASE_KEEPER_H_

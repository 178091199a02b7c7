// Gathers acks and deadline changes into few, bounded requests.
//
//   - a request holds at most 1000 ids and 510 KiB (limits.h);
//   - it leaves when it is full or kDelay after its first entry came in, whichever is first;
//   - per key (ordered or exactly-once subscriptions): while a request with an ack of a key is in
//     flight, and while an ack of it waits to be tried again, no later ack of that key leaves. The
//     service refuses acks of a key that arrive out of order, and requests in flight may overtake
//     each other.
// A retried entry keeps its place before everything that came after it.
//
// Pure logic: the caller passes the time in, sends what Take returns, reports back with Finished.

#ifndef POSTBOX_WORKER_PUBSUB_ACK_BATCHER_H_
#define POSTBOX_WORKER_PUBSUB_ACK_BATCHER_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "proto/rules/limits.h"

namespace postbox::pubsub {

struct AckEntry {
  uint64_t handle = 0;
  std::string ack_id{};
  std::string key{};  // ordering key; empty: no order to keep
  int attempts = 0;
  std::chrono::steady_clock::time_point first_sent{};
  std::chrono::steady_clock::time_point not_before{};
};

struct AckRequest {
  static constexpr int kAcknowledge = -1;
  int deadline_seconds =
      kAcknowledge;  // kAcknowledge, or what ModifyAckDeadline is to set (0: nack)
  std::vector<AckEntry> entries;

  bool is_ack() const { return deadline_seconds == kAcknowledge; }
};

class AckBatcher {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  static constexpr size_t kMaxIds = kMaxAckIds;
  static constexpr size_t kMaxBytes = kMaxAckIdBytes;
  static constexpr std::chrono::milliseconds kDelay{100};

  // `subscription` travels in every request and counts. A request is full with `full_at` ids,
  // kMaxIds at most.
  explicit AckBatcher(std::string_view subscription, size_t full_at = kMaxIds)
      : fixed_bytes_(subscription.size() + 16), full_at_(std::clamp<size_t>(full_at, 1, kMaxIds)) {}

  void set_serial_per_key(bool on) { serial_per_key_ = on; }

  // `deadline_seconds` as in AckRequest.
  void Add(int deadline_seconds, AckEntry entry, TimePoint now);
  // Entries of a finished request that are to be tried again, each from its not_before on.
  void Retry(int deadline_seconds, std::vector<AckEntry> entries, TimePoint now);
  // Lets everything leave now instead of after kDelay.
  void Flush(TimePoint now);

  // The next request that is to leave; call until there is none.
  std::optional<AckRequest> Take(TimePoint now);
  // The request has its answer. To be called before Retry of its entries.
  void Finished(const AckRequest& request);

  // When Take has something to say next, at the latest.
  std::optional<TimePoint> NextDue() const;
  bool empty() const { return queues_.empty(); }

 private:
  struct Queue {
    std::deque<AckEntry> entries;
    size_t bytes = 0;
  };

  AckRequest Build(int deadline_seconds, Queue& queue, TimePoint now);

  const size_t fixed_bytes_;
  const size_t full_at_;
  bool serial_per_key_ = false;
  std::map<int, Queue>
      queues_;  // by deadline_seconds; acks (-1) come first, nacks next; none is empty
  std::unordered_set<std::string> keys_in_flight_;
  std::optional<TimePoint> flush_at_;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_ACK_BATCHER_H_

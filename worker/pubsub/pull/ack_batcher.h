// Gathers acks and changes of ack deadlines into few requests of bounded size.
//
//   - A request holds at most 1000 ids and 510 KiB (limits.h).
//   - A request leaves when it is full, or kDelay after its first entry was added, whichever comes
//     first.
//   - The service stops sending when `outstanding` messages are not acked. So acks do not wait for
//     the delay when they are half of what the acks on their way to the service leave of that. The
//     farther away the service is, the more acks are on their way, and the sooner the next ones
//     follow. Requests are not made smaller than a kSmallestPart of `outstanding` in this way.
//   - On exactly-once subscriptions the acks of a key are serial: while a request with an ack of
//     the key is in flight, and while an ack of the key waits for its retry, no later ack of the
//     key leaves. The service refuses acks of a key that arrive out of order there, and one request
//     in flight may overtake another. Those that wait for a request in flight are held apart, and
//     make no request full. On other subscriptions, ordered ones too, the order of acks means
//     nothing. There, with a service 20 ms away, acks that waited for others of their key took up
//     the messages that may be outstanding.
//   - An entry that is tried again keeps its place before all entries that were added after it.
//
// Pure logic: the caller passes the time, sends the requests that Take returns, and reports each
// answer with Finished.

#ifndef POSTBOX_WORKER_PUBSUB_PULL_ACK_BATCHER_H_
#define POSTBOX_WORKER_PUBSUB_PULL_ACK_BATCHER_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "proto/rules/limits.h"

namespace postbox::pubsub {

struct AckEntry {
  uint64_t handle = 0;
  std::string_view ack_id{};
  std::string_view key{};                 // ordering key; empty: no order to keep
  std::shared_ptr<const char[]> block{};  // in which both are
  int attempts = 0;
  std::chrono::steady_clock::time_point first_sent{};
  std::chrono::steady_clock::time_point not_before{};
};

struct AckRequest {
  static constexpr int kAcknowledge = -1;
  // kAcknowledge, or the deadline that ModifyAckDeadline sets: 0 is a nack.
  int deadline_seconds = kAcknowledge;
  std::vector<AckEntry> entries;
  bool serial = false;  // acks of their keys wait until it is finished

  bool is_ack() const { return deadline_seconds == kAcknowledge; }
};

class AckBatcher {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  static constexpr size_t kMaxIds = kMaxAckIds;
  static constexpr size_t kMaxBytes = kMaxAckIdBytes;
  static constexpr std::chrono::milliseconds kDelay{100};
  static constexpr size_t kSmallestPart = 20;

  // `subscription` is part of every request and counts towards its bytes.
  explicit AckBatcher(std::string_view subscription, size_t outstanding = 2 * kMaxIds)
      : fixed_bytes_(subscription.size() + 16), outstanding_(outstanding) {}

  void set_serial_per_key(bool on) { serial_per_key_ = on; }

  // `deadline_seconds` as in AckRequest.
  void Add(int deadline_seconds, AckEntry entry, TimePoint now);
  // Adds entries of a finished request that are to be tried again, each not before its not_before.
  void Retry(int deadline_seconds, std::vector<AckEntry> entries, TimePoint now);
  // Lets all entries leave now instead of after kDelay.
  void Flush(TimePoint now);

  // The next request that is to leave. Call it until there is none.
  std::optional<AckRequest> Take(TimePoint now);
  // The request was answered. Must be called before Retry is called with its entries. Until then
  // its entries stay as they are: what is in flight refers to their keys.
  void Finished(const AckRequest& request, TimePoint now);

  // The time at which Take should be called again, if entries wait.
  std::optional<TimePoint> NextDue() const;
  bool empty() const { return queues_.empty() && held_.empty(); }

 private:
  struct Queue {
    std::deque<AckEntry> entries;
    size_t bytes = 0;
  };

  bool IsFull(int deadline_seconds, const Queue& queue) const;
  AckRequest Build(int deadline_seconds, Queue& queue, TimePoint now);
  void Hold(Queue& queue);

  const size_t fixed_bytes_;
  const size_t outstanding_;
  size_t acks_in_flight_ = 0;
  bool serial_per_key_ = false;
  // By deadline_seconds, so that acks (-1) come first and nacks next. No queue is empty.
  std::map<int, Queue> queues_;
  absl::flat_hash_set<std::string_view> keys_in_flight_;
  // Acks of these keys, in order. None is empty. A key is that of the first of its acks.
  absl::flat_hash_map<std::string_view, std::vector<AckEntry>> held_;
  std::optional<TimePoint> flush_at_;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PULL_ACK_BATCHER_H_

// Which messages of a subscription are leased, by which stream or Pull, and until when.
//
// Invariants: every delivery is a new lease with a new number. What a stream holds (open_streams.h)
// and how many messages of a key are leased (ordered_key.h) change here and nowhere else.
#ifndef POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_LEASES_H_
#define POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_LEASES_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/time/time.h"
#include "worker/emulator/subscription/entry.h"
#include "worker/emulator/subscription/open_streams.h"

namespace postbox::emulator {

// What messages are leased to.
struct Recipient {
  StreamId owner = 0;
  StreamState* stream = nullptr;  // null: a unary Pull
  absl::Time lease_end;
};

class Leases {
 public:
  explicit Leases(const OpenStreams* streams) : streams_(*streams) {}
  Leases(const Leases&) = delete;
  Leases& operator=(const Leases&) = delete;

  // Of a message that waits.
  void Grant(Entry* entry, const Recipient& recipient);
  void Extend(Entry* entry, absl::Time end);
  // The message waits again. In which queue is up to the caller.
  void End(Entry* entry);

  // Earlier messages first, so that an expired batch of a key causes one redelivery and not many.
  std::vector<Entry*> EndedBy(absl::Time now) const;
  std::vector<Entry*> HeldBy(StreamId owner) const;

  absl::Time first_end() const {
    return held_.empty() ? absl::InfiniteFuture() : held_.begin()->first.first;
  }
  size_t size() const { return held_.size(); }

 private:
  const OpenStreams& streams_;
  absl::btree_map<std::pair<absl::Time, uint64_t>, Entry*> held_;  // by end and sequence
  uint64_t last_ = 0;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_LEASES_H_

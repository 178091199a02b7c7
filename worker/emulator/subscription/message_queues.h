// The messages of a subscription in their queues, and the transitions between their states. It
// knows nothing of deadlines, retries and ack ids: when a transition is due is up to Subscription.
//
//   waiting --Take--> leased --Ack--> acked (gone, or kept for a seek)
//      ^                 |
//      |                 +-- EndLease, with retry_at or without
//      |                 v
//      +---- Resume -- suspended
//
// A message with a key of a subscription that keeps order is in the queue of its key
// (ordered_keys.h), every other one in that of all (unordered_queue.h). The two take turns.
//
// With `deliver_twice` the first ack of a message means that it is delivered once more.
#ifndef POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_MESSAGE_QUEUES_H_
#define POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_MESSAGE_QUEUES_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "worker/emulator/subscription/delivery_budget.h"
#include "worker/emulator/subscription/entries.h"
#include "worker/emulator/subscription/leases.h"
#include "worker/emulator/subscription/open_streams.h"
#include "worker/emulator/subscription/ordered_keys.h"
#include "worker/emulator/subscription/unordered_queue.h"

namespace postbox::emulator {

class MessageQueues {
 public:
  MessageQueues(bool ordered, bool deliver_twice)
      : ordered_(ordered),
        deliver_twice_(deliver_twice),
        leases_(&streams_),
        keys_(deliver_twice, &entries_, &leases_, &streams_) {}

  Entries& entries() { return entries_; }
  const Entries& entries() const { return entries_; }
  OpenStreams& streams() { return streams_; }
  Leases& leases() { return leases_; }
  const Leases& leases() const { return leases_; }

  // Whether the queue of this key has messages.
  bool HasKey(const std::string& name) const { return keys_.Has(name); }
  void Enqueue(Entry* entry);

  bool HasWork(StreamId id) const;
  bool HasPullWork() const { return unordered_.front() != nullptr || keys_.HasPullWork(); }
  // Leases what the budget and the order of keys allow. At most one batch of a key is leased to
  // Pulls.
  std::vector<Entry*> Take(DeliveryBudget budget, const Recipient& recipient);
  // As if the last delivery had not been. In reverse order, so that each message with a key is the
  // last leased one of its key.
  void UndoLease(Entry* entry);
  // A message with a key takes all later ones of the key with it. Without a retry_at it can be
  // delivered again at once.
  void EndLease(Entry* entry, absl::Time retry_at = absl::InfinitePast());
  // Of a message that is leased or has no key.
  void Ack(Entry* entry);
  // Removes the message, whatever its state.
  void Drop(Entry* entry);
  // What the stream holds stays leased, or is given back at once.
  void CloseStream(StreamId id, bool give_back);

  // Ends the suspensions that are over.
  void Resume(absl::Time now);
  absl::Time next_resume() const;

  // Ends all leases, makes every message acked or waiting, and builds the queues again.
  void Rebuild(absl::FunctionRef<bool(const StoredMessage&)> acked);

 private:
  struct Candidate {
    OrderedKey* key = nullptr;
    Entry* entry = nullptr;
  };
  // What is delivered next. `stream` is null for a Pull.
  Candidate Next(const StreamState* stream) const;

  const bool ordered_;
  const bool deliver_twice_;
  Entries entries_;
  OpenStreams streams_;
  Leases leases_;
  UnorderedQueue unordered_;
  OrderedKeys keys_;
  bool keys_first_ = true;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_MESSAGE_QUEUES_H_

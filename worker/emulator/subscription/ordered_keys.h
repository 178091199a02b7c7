// The ordering keys of a subscription that have messages, and which of them may be delivered now.
//
// A key waits in one list: in that of all keys if none of its messages is leased, in that of the
// stream that holds some of them, or in none: because nothing of it waits, because it is suspended,
// or because a Pull or a closed stream holds the rest. Settle() finds the list after any change.
#ifndef POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_ORDERED_KEYS_H_
#define POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_ORDERED_KEYS_H_

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "worker/emulator/subscription/entries.h"
#include "worker/emulator/subscription/leases.h"
#include "worker/emulator/subscription/open_streams.h"
#include "worker/emulator/subscription/ordered_key.h"

namespace postbox::emulator {

class OrderedKeys {
 public:
  OrderedKeys(bool deliver_twice, Entries* entries, Leases* leases, const OpenStreams* streams)
      : deliver_twice_(deliver_twice), entries_(*entries), leases_(*leases), streams_(*streams) {}
  OrderedKeys(const OrderedKeys&) = delete;
  OrderedKeys& operator=(const OrderedKeys&) = delete;

  bool Has(const std::string& name) const { return keys_.contains(name); }
  // Adds a message that waits to the queue of its key.
  void Push(Entry* entry);
  // The key to be delivered from next, null if there is none. `stream` is null for a Pull.
  OrderedKey* Next(const StreamState* stream) const;
  bool HasPullWork() const { return !ready_.empty(); }

  // Takes back a message that was leased, with all later ones of the key. They wait until retry_at.
  // InfinitePast means that they can be delivered again at once.
  void Return(Entry* entry, absl::Time retry_at);
  void Remove(Entry* entry);
  // After any change of a key. Drops messages that are done, begins their second delivery if it is
  // due, and puts the key into the list from which it may be delivered now, if there is one.
  // Removes an empty key.
  void Settle(OrderedKey* key);

  // The stream of these keys is closed.
  static void Unplace(KeyList* ready_keys);
  // Ends the suspensions that are over.
  void Resume(absl::Time now);
  absl::Time next_resume() const {
    return suspended_.empty() ? absl::InfiniteFuture() : suspended_.begin()->first.first;
  }
  // Forgets all keys. None of them may have a lease.
  void Clear();

 private:
  static void Unplace(OrderedKey* key);
  void Suspend(OrderedKey* key, absl::Time until);
  KeyList* ListOf(const OrderedKey& key, absl::Time retry_at);

  const bool deliver_twice_;
  Entries& entries_;
  Leases& leases_;
  const OpenStreams& streams_;
  absl::flat_hash_map<std::string, std::unique_ptr<OrderedKey>> keys_;
  KeyList ready_;  // with waiting messages and none leased
  std::map<std::pair<absl::Time, std::string>, OrderedKey*> suspended_;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_ORDERED_KEYS_H_

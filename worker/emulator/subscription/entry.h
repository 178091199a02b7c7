// A message within a subscription, and what the subscription knows of it.
//
// MessageQueues directs what becomes of it: Leases grants and ends its lease, OrderedKeys or
// UnorderedQueue has it while it waits, Entries notes whether it is acked.
#ifndef POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_ENTRY_H_
#define POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_ENTRY_H_

#include <cstddef>
#include <cstdint>
#include <list>

#include "absl/time/time.h"
#include "worker/emulator/subscription/stored_message.h"

namespace postbox::emulator {

class OrderedKey;

// Names a stream, or a unary Pull, within its subscription.
using StreamId = uint64_t;

struct Entry {
  enum class State { kWaiting, kSuspended, kLeased, kAcked };

  StoredMessagePtr message;
  State state = State::kWaiting;
  OrderedKey* key = nullptr;  // in whose queue it is
  uint64_t lease = 0;         // of the last delivery; 0 once that cannot be acked any more
  StreamId owner = 0;         // of the lease
  absl::Time until;           // end of the lease, or retry_at
  int failures = 0;           // its own nacks and expiries
  int deliveries = 0;
  bool repeated = false;              // deliver_twice: it is being delivered again
  std::list<Entry*>::iterator place;  // while it waits without a key

  uint64_t sequence() const { return message->sequence; }
  size_t bytes() const { return message->bytes(); }
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_ENTRY_H_

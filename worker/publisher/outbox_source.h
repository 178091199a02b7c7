// Where events come from, as publishing sees it: claim, then settle. Knows nothing of storage; the
// table outbox is one implementation.
//
// The protocol, one lane of one publication and one worker:
//
//   BEGIN  Claim()   COMMIT     the events are this worker's (a lease), nobody else publishes them
//          ... published, with no transaction open ...
//   BEGIN  Settle()  COMMIT     what came of them: confirmed, or released for another try
//
// Invariants that an implementation keeps:
//  - The events of a claim that share a key are in the order of the key, and nothing unpublished of
//    that key lies before them.
//  - A claim that committed survives the worker: TakeOver(), run by any worker, gives it back.
//  - Whatever is settled was claimed by this worker; an event that another worker has taken over
//    meanwhile is left alone.
//  - After a transaction that aborted and Forget(), the caller may try again.
#ifndef POSTBOX_WORKER_PUBLISHER_OUTBOX_SOURCE_H_
#define POSTBOX_WORKER_PUBLISHER_OUTBOX_SOURCE_H_

#include <chrono>
#include <cstddef>
#include <optional>

#include "worker/publisher/claimed_event.h"

namespace postbox::publisher {

struct ClaimLimits {
  std::size_t events;  // at most this many, > 0
  std::size_t bytes;   // of messages in wire format; one event is always taken
};

struct ClaimResult {
  Events events;
  // Claiming again at once may find more.
  bool more = false;
};

class OutboxSource {
 public:
  virtual ~OutboxSource() = default;

  // All functions are called in a transaction that the caller began and commits.
  virtual ClaimResult Claim(const ClaimLimits& limits) = 0;
  virtual void Settle(const Events& events) = 0;
  // Settles without the database, in no transaction, if that is possible: all were published and
  // the source stores nothing for each. False: nothing was done, Settle() is needed.
  virtual bool SettleInMemory(const Events& events) = 0;
  // Gives back what was claimed by workers that are gone, or too long ago.
  virtual void TakeOver() = 0;
  // Mends what a person's or an application's own UPDATE of the outbox may have left; bounded work.
  virtual void Mend() = 0;

  // Stores how far publishing has come, for a source that does not store it with Settle(): when
  // CheckpointIn() is over, or what there is when `force`.
  virtual void Checkpoint(bool force) = 0;
  // How long until the next Checkpoint(); nothing: there is nothing to store.
  virtual std::optional<std::chrono::milliseconds> CheckpointIn() const = 0;

  // The transaction of one of the functions above has failed: what it did in memory is not in the
  // database. Called in no transaction.
  virtual void Forget() = 0;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_OUTBOX_SOURCE_H_

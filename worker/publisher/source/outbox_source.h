// Where a worker gets events from and tells what became of them. Two kinds: LogOutbox and
// TableOutbox. One source belongs to one lane of one publication and to one worker.
//
//   Claim()     the events are this worker's (a lease) when its transaction has committed; no
//               other worker publishes them
//               ... they are published, with no transaction open ...
//   Settle()    what came of them: confirmed, or released for another try
//   Maintain()  what is due by the clock: leases, positions, repairs
//
// A function begins the transaction if it needs the database, and leaves it to the caller to
// commit. So what needs no database costs no transaction.
//
// Invariants that an implementation keeps:
//  - The events of a claim that share a key are in the order of the key, and nothing unpublished of
//    that key lies before them.
//  - A claim that committed survives the worker: Maintain() of any worker gives it back when the
//    worker is gone, or when the claim is older than postbox.lease_timeout.
//  - Whatever is settled was claimed by this worker; an event that another worker has taken over
//    meanwhile is left alone.
//  - When the transaction of a call failed, the caller calls RollBack() and may then try again.
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_OUTBOX_SOURCE_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_OUTBOX_SOURCE_H_

#include <algorithm>

#include "extension/base/guard.h"
#include "worker/publisher/base/transaction.h"
#include "worker/publisher/source/byte_budget.h"
#include "worker/publisher/source/claimed_event.h"
#include "worker/publisher/store/publication.h"

namespace postbox::publisher {

struct ClaimLimits {
  std::size_t events;  // at most this many, > 0
  std::size_t bytes;   // of messages in wire format
  // The first event may have so many, if that is more.
  std::size_t first = std::numeric_limits<std::size_t>::max();
};

struct ClaimResult {
  Events events;
  // Up to where WAL makes the events durable; 0: up to the end of the claim's own COMMIT.
  XLogRecPtr durable_at = 0;
  // Claiming again at once may find more.
  bool more = false;
  // If nothing was claimed because the first event is larger than ClaimLimits::first: how large it
  // is. Otherwise 0.
  std::size_t needed = 0;
};

// How a lane claims from a source.
struct ClaimWay {
  LOCKMODE lock;  // on the outbox, for the transaction; not waited for
  int most_events;
  // A claim does not look at a backlog again, so it may be small while a topic refuses everything.
  bool may_be_small;
  bool keeps_room;  // KeptPart() of the budget is kept free
};

// How far an outbox has been read: to this value of a sequence, which moves with every event.
struct ReadMark {
  Oid sequence;
  int64 value;
};

class OutboxSource {
 public:
  virtual ~OutboxSource() = default;

  virtual ClaimResult Claim(const ClaimLimits& limits, Transaction* transaction) = 0;
  // While its sequence stands there, Claim() would find nothing, unless rows were written past the
  // sequence. Nothing: only a claim can tell.
  virtual std::optional<ReadMark> ReadUpTo() const = 0;
  // Frees the plans of its statements, which are made again when they are needed: of an outbox that
  // is still they would take memory for nothing. Called in no transaction.
  virtual void ForgetPlans() = 0;
  // Stores results. False: since it was rolled back, the outbox knows nothing of these events any
  // more, and sends them again.
  virtual bool Settle(std::span<const EventPointer> events, Transaction* transaction) = 0;
  // `leaving`: the worker is about to go, so nothing may be left for later.
  virtual void Maintain(bool leaving, Transaction* transaction) = 0;
  // The worker was not heard of for so long that others may have taken over what it has. Called
  // before Maintain(), which finds out; until then there is nothing to claim.
  virtual void MarkLeaseUncertain() {}
  // Instead of Maintain(true): others may take the lane at once.
  virtual void GiveUp(Transaction* transaction) = 0;
  // Nothing is claimed any more; another source of the same outbox may go on with what is stored.
  // `why`: for the log; empty if none does.
  virtual void Retire(const std::string& /*why*/) {}
  virtual ClaimWay way() const = 0;
  // How long until Maintain() has something to do.
  virtual std::chrono::milliseconds MaintainIn() const = 0;

  // The transaction in which one of the functions above was called last has failed: what it did in
  // memory is not in the database. Called in no transaction, and for no other.
  virtual void RollBack(const std::string& error) = 0;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_OUTBOX_SOURCE_H_

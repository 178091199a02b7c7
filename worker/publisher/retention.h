// Removes what is older than its retention: postbox.purge_outbox, one batch at a time, and
// postbox.purge_inbox, as the owner of the table. One worker of a database does it (the one with
// ordinal 0).
//
// A round begins every postbox.maintenance_interval and visits the outboxes and inboxes in turn,
// each until a batch comes back with nothing to delete. A table that fails is left out until the
// next round.
//
// A batch that takes too long is cancelled, and the table's next one is smaller. Code of the
// table's owner runs in it: so if other outboxes are published, each table has an account of the
// worker's time, as a publication has (policy/turn_account.h).
#ifndef POSTBOX_WORKER_PUBLISHER_RETENTION_H_
#define POSTBOX_WORKER_PUBLISHER_RETENTION_H_

#include <deque>

#include "extension/base/guard.h"
#include "worker/publisher/policy/adaptive_size.h"
#include "worker/publisher/policy/turn_account.h"

namespace postbox::publisher {

class Retention {
 public:
  // Purges one batch of one table if a round is under way or due. Returns whether there is more to
  // do at once. Runs its own transactions; throws nothing of Postgres.
  bool Step(TimestampTz now);
  // The outboxes of the worker's publications.
  void SetPublished(std::set<Oid> outboxes) { published_ = std::move(outboxes); }
  // When the wait of a table is over; DT_NOEND if there is nothing to do before the next round.
  TimestampTz NextStep() const;
  // The code of this outbox or inbox has ended a worker (base/step_limit.h): it is left out for ten
  // minutes.
  void Avoid(Oid relation, TimestampTz now);

 private:
  struct Table {
    Oid relation;
    bool outbox;
  };
  // What is known of a table from earlier batches.
  struct Experience {
    AdaptiveSize batch;  // how many rows
    TurnAccount account;
    Moment avoided_until = 0;
    Moment WaitsUntil() const { return std::max(avoided_until, account.waits_until()); }
  };

  // `waiting`: what the last round has left, which goes first.
  void Begin(TimestampTz now, const std::deque<Table>& waiting);
  // Moves the first table that does not wait to the front; false if there is none.
  bool FindTable(TimestampTz now);
  void PurgeFirst();
  // Purges one batch of the first table. Returns how many rows are gone.
  std::size_t Purge(std::size_t batch);
  void Charge(Oid relation, TimestampTz begin, std::size_t rows, bool failed);
  void Failed(const PostgresError& error, TimestampTz now);
  Experience& ExperienceOf(Oid relation);
  TimestampTz WaitsUntil(const Table& table) const;

  std::set<Oid> published_;
  std::deque<Table> left_;
  std::unordered_map<Oid, Experience> experience_;
  // When the last round began. Not when the next is due: the interval may be changed meanwhile.
  TimestampTz last_round_ = 0;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_RETENTION_H_

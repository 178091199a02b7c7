// Deletes what is older than its retention: postbox.purge_outbox and postbox.purge_inbox, one batch
// at a time, as the owner of the table. One worker of a database does it (the one with ordinal 0).
//
// A round begins every postbox.maintenance_interval and visits every outbox and inbox until a batch
// comes back with nothing to delete. A table that fails is left out until the next round.
#ifndef POSTBOX_WORKER_PUBLISHER_RETENTION_H_
#define POSTBOX_WORKER_PUBLISHER_RETENTION_H_

#include "extension/base/guard.h"

namespace postbox::publisher {

class Retention {
 public:
  // Purges one batch of one table if a round is under way or due. Returns whether there is more to
  // do at once. Runs its own transactions; throws nothing of Postgres.
  bool Step(TimestampTz now);
  // The code of this outbox or inbox has ended a worker (base/step_limit.h): it is left out for ten
  // minutes.
  void Avoid(Oid relation, TimestampTz now);

 private:
  struct Table {
    Oid relation;
    bool outbox;
  };

  void Begin(TimestampTz now);
  // Returns whether the table is done for this round.
  bool Purge(const Table& table);

  std::vector<Table> left_;
  std::unordered_map<Oid, TimestampTz> avoided_;  // until when
  // When the last round began. Not when the next is due: the interval may be changed meanwhile.
  TimestampTz last_round_ = 0;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_RETENTION_H_

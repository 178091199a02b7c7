// Counting the versions of aggregates: in the version counter, a table with a row for each
// aggregate, and for what a transaction emits in large numbers mostly in memory.
//
// Rule: the row of an aggregate is locked from the first event that a transaction counts for it
// until the transaction ends, and it never holds less than the last version given to an event.
//
// Each UPDATE of a row leaves a version of the row behind that nothing can remove while the
// transaction runs, and the next UPDATE walks past all of them. So the first kCountedInRow events
// of an aggregate in a transaction are counted in its row, one by one. From then on the row is set
// ahead, by as much as the transaction has counted so far, and versions up to there are given out
// from memory. Before COMMIT and before PREPARE TRANSACTION the row is set back to the last version
// that was given out. So n events write the row log(n) times, and other transactions see what they
// would have seen otherwise.
//
// emit_changes counts what a batch of changed rows emits for one aggregate as one event is counted.
//
//  1. The transaction has counted 32 events in the row; it holds 32. The next event sets it to 64
//     and gets 33. 31 more come from memory.
//  2. A subtransaction takes 34 to 40 and is rolled back. What was in memory before it began is
//     put back, and 34 is given out again. If the row was set ahead in it, that is rolled back,
//     too, and with it the place of the row in memory.
//  3. The owner changes the row in the same transaction, or truncates the table. Before a version
//     is given out from memory, the row is looked at where it was written last: if it is not there
//     any more, memory is forgotten, and counting goes on from what the row says now.
//  4. COMMIT: after the deferred triggers, which may emit, rows that are ahead are set back. They
//     are locked since long, so nothing waits. If that fails, so does the COMMIT.
//  5. Something emits even later, in a callback of another extension. It counts in the row again.
//     At worst, after as many events as in 1, the row stays ahead, which leaves a gap.
//
// Within the transaction itself a SELECT from the counter may see the row ahead. Nothing of Postbox
// reads it there.
//
// Memory is bounded: a transaction that counts so many aggregates so often that kMaxBytes are full
// counts further ones in their rows. A counter with triggers, rules or row security, where an
// UPDATE may do something else, is always counted in the row, and so is one whose columns do not
// have their types any more. What the owner's code emits while a row is set is counted in rows.
#ifndef POSTBOX_EXTENSION_EMIT_VERSION_COUNTER_H_
#define POSTBOX_EXTENSION_EMIT_VERSION_COUNTER_H_

#include "extension/emit/outbox_cache.h"

namespace postbox {

struct Aggregate {
  Datum type;  // text, not toasted, and so is id
  Datum id;
};

// Counts the version up, if that can be done in memory or where the counter is a plain table
// (plain_table.h), and returns it; 0 if it cannot. Needs neither SPI nor rights. Locks the
// aggregate.
int64 CountVersionWithoutSql(const Outbox& outbox, const Aggregate& aggregate);

// Whether this transaction counts it in memory. Then it has the lock.
bool IsCountedInMemory(const Outbox& outbox, const Aggregate& aggregate);

// The same for several events of many aggregates, no two alike, and none of them counted in memory,
// in the rows of the open counter. Returns how many of them it has counted, in their order: the
// next one it cannot. As it does not wait for that one, so it locks none behind it.
size_t CountVersionsInTable(const Outbox& outbox, PlainTable* counter, Datum type,
                            std::span<EventCount> counts);

// The same for a version that is given to an event of a log: makes it the last version if it is
// greater than that. False if it cannot.
bool TakeVersionWithoutSql(const Outbox& outbox, const Aggregate& aggregate, int64 version);

// The functions below lock the aggregate. They want SPI connected, FixedSearchPath, and the owner
// of the outbox as the current user.

// Counts the version up and returns it.
int64 CountVersion(Outbox* outbox, const Aggregate& aggregate);

// Makes `version`, which is positive, the last version. If it is not greater than the last one,
// throws invalid_parameter_value; in a log, the last version stays.
void TakeVersion(Outbox* outbox, const Aggregate& aggregate, int64 version);

// Changes nothing.
void LockAggregate(Outbox* outbox, const Aggregate& aggregate);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_EMIT_VERSION_COUNTER_H_

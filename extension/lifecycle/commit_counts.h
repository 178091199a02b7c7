// What a transaction has emitted and applied, counted when it commits. postbox.so only.
//
// A transaction collects its numbers in the memory of the backend, and adds them to shared memory
// in a callback of its commit: one atomic addition for each outbox. So what was rolled back, a
// savepoint included, is not counted.
//
// PREPARE TRANSACTION drops the numbers: COMMIT PREPARED may run in another session, or never.
// Events of prepared transactions are not counted.
//
// The callback raises no error and allocates no memory. At that time the transaction still has its
// locks; shared/metrics.h tells what follows from that.
#ifndef POSTBOX_EXTENSION_LIFECYCLE_COMMIT_COUNTS_H_
#define POSTBOX_EXTENSION_LIFECYCLE_COMMIT_COUNTS_H_

#include "extension/base/postgres.h"
#include "extension/shared/metrics.h"

struct TriggerData;

namespace postbox {

// The session has a lock on the outbox or inbox until the transaction ends. Each function does
// nothing if the library is not preloaded.
void CountEmittedAtCommit(Oid outbox, uint64 events);

// How many events ended in each way.
using OutcomeCounts = std::array<uint64, kMetricOutcomes>;
// Counts a call that took so long, and returns where its outcomes are counted, until the next call
// of a function of this file. nullptr if nothing is counted.
OutcomeCounts* CountApplyAtCommit(Oid inbox, int64 micros);

// For the trigger of a configuration table: what is deleted there has no metrics any more.
void ForgetDeletedAtCommit(const TriggerData& trigger);
// The extension is dropped in this database. Workers that find it gone forget as much, but there
// may be none.
void ForgetDatabaseAtCommit();

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_LIFECYCLE_COMMIT_COUNTS_H_

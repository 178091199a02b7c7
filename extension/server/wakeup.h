// What a session tells the workers when its transaction commits, and how sessions wait for events
// to be applied. postbox.so only.
//
// The functions named ...AtCommit set a flag of the current transaction; one callback, registered
// once in the life of the backend at the first use, acts at commit and forgets at abort. They cost
// a few instructions, may be called any number of times in a transaction, raise no error, and do
// nothing when the library is not preloaded. A rolled-back savepoint does not take the flag back: a
// worker then wakes in vain.
//
// PREPARE TRANSACTION forgets the flags too: nothing is visible yet. COMMIT PREPARED raises them
// (extension/server/hooks.cc), since nobody remembers what the transaction did.
#ifndef POSTBOX_EXTENSION_SERVER_WAKEUP_H_
#define POSTBOX_EXTENSION_SERVER_WAKEUP_H_

#include "extension/base/postgres.h"
#include "extension/shared/shared_state.h"

namespace postbox {

// An event was emitted (or redriven): wake this database's workers.
void RequestPublishersAtCommit();

// Publications or outboxes changed: raise the config generation and wake this database's workers.
void ConfigChangedAtCommit();

// CREATE, ALTER or DROP EXTENSION postbox in this database: tell its workers and the launcher.
void ExtensionChangedAtCommit();

// Databases came, went or changed their name or properties: the launcher reads pg_database again.
void DatabasesChangedAtCommit();

// An event was applied: wake the sessions in WaitApplied().
void NotifyAppliedAtCommit();

// Waiting for something to be applied, as wait_for_version does it:
//
//   PrepareToWaitApplied();
//   while (!<look, with a new snapshot, whether it is there>) {
//     if (<deadline passed>) break;
//     WaitApplied(<milliseconds that are left>);
//   }
//   FinishWaitApplied();
//
// PrepareToWaitApplied comes before the look, so that no commit is missed between look and sleep.
// WaitApplied returns after a commit that applied something in any database, after `timeout_ms`, or
// for no reason; it raises an error when the query is cancelled (call it through Pg()). When the
// library is not preloaded nobody can wake, and it sleeps for 20 ms at most. An error needs no
// FinishWaitApplied: aborting the transaction does the same.
void PrepareToWaitApplied();
void WaitApplied(long timeout_ms);
void FinishWaitApplied();

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_SERVER_WAKEUP_H_

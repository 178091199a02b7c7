// What a session tells workers, launcher and waiting sessions when its transaction commits, and how
// a session waits for events to be applied or published. postbox.so only.
//
// Rule: a message is sent after the commit is visible, and a receiver looks at the data only after
// it has received the message (or has prepared its sleep). So a receiver that is woken sees the
// commit.
//
// The functions named ...AtCommit set a flag of the current transaction. One callback, registered
// when the backend sets its first flag, sends the messages at commit and clears the flags at abort.
// The functions cost a few instructions, may be called any number of times in a transaction, raise
// no error, and do nothing when the library is not preloaded. A flag is not per subtransaction:
// after ROLLBACK TO SAVEPOINT it stays, and a worker wakes up and finds nothing.
//
// What can go wrong, and why no event waits longer than postbox.poll_interval:
//  - The worker reads its outbox just before the commit is visible and sleeps just after the
//    message: the latch was set in between, so the sleep ends at once. Worker: ResetLatch, read,
//    sleep on the latch; session: commit, memory barrier, SetLatch.
//  - The worker starts, and has no slot yet when the session looks for it: it reads its outbox when
//    it is up.
//  - The session is killed between its commit and the callback: the message is lost. The server
//    restarts all processes then (SIGKILL), or the callback has run (SIGTERM waits for it).
//  - PREPARE TRANSACTION clears the flags, since nothing is visible yet. COMMIT PREPARED may run in
//    another session, which does not know what the transaction did: it wakes the workers of the
//    database and the sessions that wait, and says that the configuration changed if the server
//    says so (hooks.h).
//  - A plain INSERT into a table outbox sets no flag, nor does one past the trigger of a log
//    (emit/stamp.cc). The worker finds the row when it polls. (Such a row of a log may move no
//    sequence. Where a worker has more than ten lanes, it waits for the poll at which its lane has
//    its turn: worker/publisher/poll.h.)
//
// The flags are in the memory of the backend; the messages are in SharedState. Nothing is on disk:
// after a crash every worker starts and reads everything.
#ifndef POSTBOX_EXTENSION_LIFECYCLE_WAKEUP_H_
#define POSTBOX_EXTENSION_LIFECYCLE_WAKEUP_H_

#include "extension/base/postgres.h"
#include "extension/shared/shared_state.h"

namespace postbox {

// An event was emitted: wake this database's workers to look at this outbox.
void RequestPublishersAtCommit(Oid outbox);
// Events were redriven, or may have been emitted anywhere: they look at all outboxes.
void RequestPublishersAtCommit();

// Publications or outboxes changed: raise the config generation of this database and wake its
// workers.
void ConfigChangedAtCommit();

// The tables that workers read their configuration from; InvalidOid where there is none.
struct ConfigRelations {
  Oid outbox = InvalidOid;
  Oid publication = InvalidOid;
  Oid credential = InvalidOid;
  Oid credential_secret = InvalidOid;

  bool Has(Oid relation) const {
    return relation == outbox || relation == publication || relation == credential ||
           relation == credential_secret;
  }
};
// By the catalogs of this database. Call it in a transaction, through Pg().
ConfigRelations FindConfigRelations();

// CREATE, ALTER or DROP EXTENSION postbox in this database: tell its workers and the launcher.
void ExtensionChangedAtCommit();

// The settings of `database` changed, just now: the launcher looks again how many workers it wants.
// Only with a preloaded library.
void ChangeDatabase(Oid database);

// A database was created, dropped, renamed or altered: the launcher reads pg_database again.
void DatabasesChangedAtCommit();

// An event was applied to a row: wake the sessions that wait for it. `row` is a hash of the target
// and the key.
void NotifyAppliedAtCommit(uint32 row);
// Events may have been applied to any rows: wake all that wait for one.
void NotifyAppliedAtCommit();

// What a session waits for: an event that is applied to a row, or one that is published.
struct Awaited {
  static Awaited Applied(uint32 row) { return {.row = row}; }
  static Awaited Published() { return {}; }

  std::optional<uint32> row;
};

// Waiting for it. `is_there` looks, with a new snapshot: once, and once more after the sleep was
// prepared, so that no commit is missed between look and sleep. Then it sleeps until a commit has
// applied an event to such a row, or stored what was published, in any database, and looks again.
// False if it is not there at the deadline.
//
// A sleep may end early, since rows may share a place, and lasts for `longest_ms` at most: on a
// standby, where no session commits, for 50 ms, and without the shared memory of a preloaded
// library for 20 ms.
bool WaitUntil(const Awaited& what, TimestampTz deadline, long longest_ms,
               const std::function<bool()>& is_there);

// Sleeps for so long, or until the latch of this session is set. Raises an error when the query is
// cancelled.
void SleepOnLatch(long timeout_ms, uint32 wait_event = PG_WAIT_EXTENSION);

// The end of such a wait that begins now. Throws invalid_parameter_value if the time-out, an
// interval, is negative.
TimestampTz DeadlineAfter(Datum timeout);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_LIFECYCLE_WAKEUP_H_

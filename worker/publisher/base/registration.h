// The life of a publisher worker as far as the rest of Postbox sees it: its slot in shared memory,
// its identity, its connection, and how it leaves.
//
// The order in postbox_publisher_main(slot):
//  1. set the handlers of SIGTERM and SIGHUP, BackgroundWorkerUnblockSignals();
//  2. Register(slot): takes the slot; leaves if the database is held or the start was revoked;
//  3. Connect(), and read the configuration files: a reload may have come before the handler;
//  4. if (!ExtensionExists()) LeaveWithoutExtension();
//  5. Ready(): from here on the launcher starts the other workers of the database; or
//     LeaveUnwanted() if the database is to have none;
//  6. work; when ConfigGeneration() changes, and when a table of the extension is not there, do 4
//     again;
//  7. on SIGTERM, or when YieldRequested(): Leave().
//
// How to end, and what the postmaster makes of it:
//  - proc_exit(0) and proc_exit(1) from the main thread are both fine; so is ereport(ERROR) that
//    reaches the top and ereport(FATAL). The launcher starts the worker again, after
//    postbox.restart_delay which doubles with each failure; it learns why a worker ended from
//    the slot, not from the exit code. Exit code 1 is also written to the log by the postmaster.
//  - Anything else (abort, SIGSEGV, _exit() past proc_exit, exit code > 1) is a crash: the
//    postmaster kills every session and runs recovery.
//  - proc_exit may run only on the main thread: another thread that cannot go on tells the main
//    thread to. proc_exit runs exit handlers and then exit(), so threads must have been joined
//    before: do that in a before_shmem_exit callback that you register, which also runs for FATAL.
//  - SIGTERM means "leave soon": give back what is claimed if that is quick, then Leave(). Sessions
//    in DROP DATABASE wait for it, for 10 seconds at most.
//
// The functions here may ereport and belong to the main thread. None is called in a transaction
// except where it says so.
#ifndef POSTBOX_WORKER_PUBLISHER_BASE_REGISTRATION_H_
#define POSTBOX_WORKER_PUBLISHER_BASE_REGISTRATION_H_

#include "extension/base/postgres.h"
#include "extension/shared/settings.h"
#include "extension/shared/shared_state.h"

namespace postbox::publisher {

struct Identity {
  int slot;
  int ordinal;  // which of the database's workers, from 0
  Oid database;
  uint64 token;
  char lock_token[kLockTokenSize];  // what the worker writes into lock_token
};

// Makes settings() show the values that postbox.so has. ereports if the running server has loaded
// another release of it. Register() does it; for a process that is no worker.
void FindSettings();

// Takes the slot that the launcher reserved and gives it up when the process exits. Does not return
// when the launcher has changed its mind or the database is held: it leaves, quietly.
void Register(Datum slot);

// Who this worker is; valid after Register().
const Identity& identity();

// Connects to the database of the slot, pins user and settings (worker_session.h), and sets
// application_name.
void Connect();

// Keeps the extension, if it exists, until the transaction ends. DROP EXTENSION locks the extension
// first and then its tables, in its own order. A transaction that holds the extension when it
// locks some of them cannot get into a deadlock with that. Called in a transaction.
void ShareExtension();

// Whether the extension postbox exists in this database, in a separate transaction.
bool ExtensionExists();

// Leaves if the extension does not exist any more: DROP EXTENSION takes the tables away while a
// worker uses them, which is no error. What was claimed is not given back: a new worker takes the
// leases over, should there ever be one.
void LeaveIfExtensionGone();

// Tells how many workers the settings of this database want, and returns it. The launcher is in no
// database, and cannot read them.
int TellPublishers();

// Tells that the worker has found its extension and works.
void Ready();

// Tells that the worker had something to do just now; with `goes_on`, that it has until it says
// otherwise. If there are not enough slots, an idle one gives up its own (extension/rules/turns.h).
void NoteWork(bool goes_on);
// Whether the launcher wants the slot for a database that waits. There is no hurry.
bool YieldRequested();

// Tells the others that this worker lives. Returns for how long they did not hear of it.
std::chrono::milliseconds RecordHeartbeat();
// For how long a worker that is not heard of counts as living, in milliseconds.
uint64 LeaseMilliseconds();

// The outboxes in which there may be something to publish, if that is why the latch was set. The
// server sets it for other reasons, too.
WakeSet TakeWakeUp();
// Whether there is a wake-up to take.
bool HasWakeUp();

// The generation before the configuration that the worker has read, and whether that is still the
// one; true in a process that has not read any.
void ConfigLoaded(uint64 generation);
bool ConfigIsCurrent();

// Tells that the worker has read the publications, or could not.
void SetServing(bool serving);
// Shows what the worker holds back until a standby has confirmed WAL (shared_state.h); nothing: {}.
void ShowStandbyWaits(const std::vector<StandbyWait>& waits);

// Shows the publications that the topic's server does not answer; nothing: {}.
struct ShownOutage {
  uint64 publication;  // HashOfName()
  TimestampTz since;
  TimestampTz next_try;
  std::string error;  // kMaxShownError bytes at most
};
void ShowOutages(const std::vector<ShownOutage>& outages);
// Whether this worker writes about one of them into the log: no other worker of the database has
// said so before, and shows it still.
bool TellsOfOutage(uint64 publication);

// Shows why the worker can publish nothing, or not all, in kMaxShownError bytes at most; empty:
// nothing is missing.
void ShowProblem(const std::string& problem);

// Whether SIGTERM has come (SignalHandlerForShutdownRequest is the handler to use).
bool StopRequested();

// Ends the process: proc_exit(0). No failure is counted. `work_left`: there is something to
// publish.
[[noreturn]] void Leave(bool work_left);

// Leaves because postbox.publishers is 0 in this database.
[[noreturn]] void LeaveUnwanted();

// Leaves and tells the launcher that this database needs no workers until CREATE EXTENSION.
[[noreturn]] void LeaveWithoutExtension();

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_BASE_REGISTRATION_H_

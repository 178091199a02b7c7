// What the processes of Postbox share: which worker serves which database, what sessions tell the
// launcher, and the counters that workers and waiting sessions watch.
// extension/lifecycle/README.md lists every message with its writer, its reader and its lock.
//
// The memory is allocated at server start if postbox is in shared_preload_libraries; otherwise
// there is none, and shared_state() is nullptr. It holds plain data and proc numbers: no pointers,
// no file descriptors. This file is compiled into both modules; the two find the same memory by its
// name.
//
// The states of a worker slot:
//
//   kFree --launcher asks the postmaster--> kStarting --worker attaches--> kAttached
//     ^                                        |                              |extension found
//     |                                        |never came up                 v
//     +------------launcher has read why--- kExited <---worker exits------ kRunning
//
// Invariants:
//  - A slot changes only under SharedStateLock() in exclusive mode. `database` and `proc_number`
//    are atomics, so that a commit can wake workers without a lock. What it reads may be out of
//    date; then it sets a latch without a waiter, which every latch owner has to tolerate
//    anyway.
//  - A worker's pid is in its slot only while that process exists: the worker sets it before it
//    connects to its database and clears it after it has left the proc array. So a process that has
//    the lock may signal the pid, and a database without an attached slot has no worker in it.
//  - A token is random and never used again: a lease under a token that no attached slot has is a
//    lease whose owner has ended.
//  - A worker writes `seen_at` each time it comes round its loop, before it looks at what it holds.
//    One that has not done so for postbox.lease_timeout lives no longer as far as others are
//    concerned. Nothing is written to a table for that, so a lease costs an idle worker nothing.
//  - While a database is held, no worker attaches to it.
#ifndef POSTBOX_EXTENSION_SHARED_SHARED_STATE_H_
#define POSTBOX_EXTENSION_SHARED_SHARED_STATE_H_

#include "extension/base/postgres.h"
#include "extension/shared/wake_set.h"

extern "C" {
#include <storage/condition_variable.h>
}

namespace postbox {

inline constexpr int kMaxWorkers = 128;
inline constexpr int kMaxHolds = 64;
inline constexpr int kMaxExtensionChanges = 32;
inline constexpr int kConfigGenerations = 128;
inline constexpr int kMaxSuspects = 32;
inline constexpr int kMaxStandbyWaits = 16;
inline constexpr int kMaxOutages = 8;
inline constexpr int kMaxUnserved = 256;
inline constexpr int kWorkMarks = 128;

// Raise it with every change of SharedState, so that a new postbox_worker.so started under an old
// postbox.so (an upgrade without a restart) says so instead of misreading the memory. A macro,
// because the test of that builds a worker of another release.
#ifndef POSTBOX_SHARED_STATE_LAYOUT
#define POSTBOX_SHARED_STATE_LAYOUT 11
#endif
inline constexpr uint32 kSharedStateLayout = POSTBOX_SHARED_STATE_LAYOUT;

enum class SlotState : int32 { kFree, kStarting, kAttached, kRunning, kExited };

// Why a worker ended, as the worker itself wrote it; kFailed unless it wrote another reason.
enum class ExitReason : int32 { kFailed, kStopped, kNoExtension, kNotWanted };

// Why the launcher could not start the last worker that was wanted: postbox.max_workers of them
// run, or the server has no room; or the process has ended before it could take its slot.
enum class StartProblem : int32 { kNone, kNoWorkerSlot, kNoServerSlot, kDidNotComeUp };

// A publication of which a worker holds events back until a synchronous standby has confirmed WAL.
struct StandbyWait {
  uint64 publication;  // HashOfName(); 0: of all those for which there was no room
  XLogRecPtr position;
  TimestampTz since;
};

// A publication that a worker tries again and again, since its topic answers no request.
inline constexpr size_t kMaxShownError = 255;
struct OutageSlot {
  uint64 publication;  // HashOfName(); 0: all those for which there was no room
  TimestampTz since;
  TimestampTz next_try;
  bool told;                       // this worker writes about it into the log
  char error[kMaxShownError + 1];  // in the encoding of the database
};

struct WorkerSlot {
  pg_atomic_uint32 database;     // Oid; InvalidOid when the slot is free
  pg_atomic_uint32 proc_number;  // of the attached worker; kNobody otherwise
  pg_atomic_uint64 seen_at;  // when the worker last came round its loop; MonotonicMilliseconds()
  pg_atomic_uint32 wake_up;  // 1: WakePublishers() has set the latch
  pg_atomic_uint32 woken_for[WakeSet::kWords];  // the outboxes for which; written before wake_up
  // When it last had something to do; MonotonicMilliseconds(). PG_UINT64_MAX: it has.
  pg_atomic_uint64 worked_at;
  pg_atomic_uint32 yield;  // 1: the launcher wants the slot for another database
  SlotState state;
  ExitReason exit_reason;
  pid_t pid;      // 0 unless attached
  int32 ordinal;  // which of the database's workers, from 0
  uint64 launch;  // which start of a worker this slot is for; goes to the worker in bgw_extra
  uint64 token;   // drawn when the worker attaches; 0 before
  uint64 extension_epoch;  // as it was before the worker looked for the extension
  TimestampTz started_at;
  int32 publishers;  // how many this database wants; kAsServer: as many as the server says
  bool work_left;    // when it left there was something to publish
  bool serving;      // it has read the publications
  int32 standby_wait_count;
  StandbyWait standby_waits[kMaxStandbyWaits];
  int32 outage_count;
  OutageSlot outages[kMaxOutages];
  // Why the worker can publish nothing, or not all; empty: nothing is missing. In the encoding of
  // the database.
  char problem[kMaxShownError + 1];
};

// `publishers` of a slot whose database has no own value.
inline constexpr int32 kAsServer = -1;

// `proc_number` of a slot (or of the launcher) without a process.
inline constexpr uint32 kNobody = PG_UINT32_MAX;

// A session that keeps a database free of workers until its transaction ends (lifecycle/hooks.h).
struct Hold {
  Oid database;  // InvalidOid: free
  pid_t holder;
};

// An outbox whose code a worker could not end otherwise than by ending itself. The next worker of
// the database suspends its publications (worker/publisher/base/step_limit.h).
struct Suspect {
  Oid database;
  Oid outbox;
};

struct SharedState {
  uint32 layout;  // kSharedStateLayout

  // Goes up with every committed change of publications or outboxes in a database. Databases whose
  // OIDs have the same remainder share one: then workers of the other one read their configuration
  // once too often.
  pg_atomic_uint64 config_generations[kConfigGenerations];
  // Goes up with every committed CREATE, ALTER or DROP EXTENSION postbox, in any database.
  pg_atomic_uint64 extension_epoch;
  // By the place of a row in a WakeSet: broadcast when a transaction that applied an event to such
  // a row has committed; wait_for_version sleeps at the place of its row.
  ConditionVariable applied[WakeSet::kPlaces];
  // Broadcast when a worker has stored results or a position; wait_published sleeps here.
  ConditionVariable published;

  pg_atomic_uint32 launcher_proc_number;  // kNobody while there is none
  TimestampTz launcher_started_at;        // written by the launcher only; 0: it never was
  // Broadcast when a worker has left; a session that waits for its held database sleeps here.
  ConditionVariable worker_left;

  // Under the lock: databases in which the extension was created, altered or dropped since the
  // launcher last looked. If there are more than fit, the overflow flag stands for all databases.
  Oid extension_changes[kMaxExtensionChanges];
  int32 extension_change_count;
  bool extension_changes_overflow;
  // Under the lock: pg_database has changed, and the launcher has to read it again.
  bool databases_changed;

  // Under the lock. If there are too many, the oldest is dropped; its code will be ended again.
  Suspect suspects[kMaxSuspects];
  int32 suspect_count;

  // Under the lock.
  StartProblem start_problem;

  // How many slots have a problem. Written under the lock.
  pg_atomic_uint32 problem_count;
  // Databases that have no worker because there are not enough slots for all, or because it does
  // not come up. The launcher writes
  // them. There may be more than fit; then any database without a worker counts as one of them.
  pg_atomic_uint32 unserved_count;  // written under the lock
  Oid unserved[kMaxUnserved];       // under the lock
  // 1: something was committed in a database whose OID has this remainder, and no worker was
  // attached. Databases share a mark: then one gets a turn for which it has no use.
  pg_atomic_uint32 work_marks[kWorkMarks];

  uint64 next_launch;
  Hold holds[kMaxHolds];
  // No slot from this number on is in use: commits look no further. Only the launcher writes it.
  pg_atomic_uint32 slots_in_use;
  WorkerSlot workers[kMaxWorkers];
};

// The shared memory, nullptr when the library is not preloaded (emit-only mode). In
// postbox_worker.so: nullptr until AttachSharedState().
SharedState* shared_state();

// Whether workers can run at all in this server.
inline bool Preloaded() { return shared_state() != nullptr; }

// For module.cc: requests the memory and the lock; then, in the shmem_startup_hook, creates or
// finds them.
void RequestSharedState();
void CreateOrFindSharedState();

// For postbox_worker.so: finds what postbox.so created. Raises an error if its layout is another
// release's.
void AttachSharedState();

// Guards everything in SharedState that is no atomic. Held for a few dozen instructions, never
// while waiting.
LWLock* SharedStateLock();

// Sets the latches of all attached workers of `database`, so that they look at these outboxes;
// returns whether there is one. Takes no lock, raises no error: safe in a commit callback. A no-op
// when not preloaded.
bool WakePublishers(Oid database, const WakeSet& outboxes = WakeSet::All());
// The same when there may be something to publish: if no worker is attached, it is marked.
void AnnounceWork(Oid database, const WakeSet& outboxes);
void WakeLauncher();
// Wakes the sessions that wait for an event to be published: a worker has committed results.
void AnnouncePublished();

// See SharedState::config_generations; that of the database of this process. A worker keeps the
// value that it read BEFORE it read the configuration, and reads the configuration again when this
// differs. 0 when not preloaded.
uint64 ConfigGeneration();
// Raises it. Takes no lock, raises no error.
void RaiseConfigGeneration();

// Of the name of a publication, never 0.
uint64 HashOfName(std::string_view name);

// A position in WAL as pg_lsn is written.
std::string LsnText(XLogRecPtr position);

// Of the monotonic clock, which all processes of the machine share.
uint64 MonotonicMilliseconds();

// How a token is written into lock_token: `postbox-` and 16 hexadecimal digits.
inline constexpr size_t kLockTokenSize = sizeof("postbox-0123456789abcdef");
inline void FormatLockToken(uint64 token, char (&text)[kLockTokenSize]) {
  snprintf(text, sizeof text, "postbox-%016llx", static_cast<unsigned long long>(token));
}

// Notes a suspect; takes those of a database out of the list. NoteSuspect() is called under the
// lock, TakeSuspects() takes it.
void NoteSuspect(SharedState* state, const Suspect& suspect);
std::vector<Oid> TakeSuspects(Oid database);

// Sets what a slot says of its worker's problem; empty: none. Under the lock.
void SetProblem(WorkerSlot* worker, const std::string& problem);

// Whether `database` has no worker because there are not enough slots, or because it does not come
// up. Under the lock; `database` has no attached worker.
bool IsUnserved(SharedState* state, Oid database);

// Asks the worker of a slot to finish what is on its way and leave.
void AskToYield(WorkerSlot* worker);

// Whether a session holds `database` free of workers. Under the lock.
bool IsHeld(const SharedState* state, Oid database);

// Sends SIGTERM to the workers attached to `database`. Takes the lock, raises no error. The
// launcher starts them again unless the database is held or fewer are configured.
void StopPublishers(Oid database);

// Whether a worker is attached to `database`.
bool HasPublishers(Oid database);

// The lock tokens of the workers attached to `database`, this process included.
//
// To find leases whose owner has ended: read the lock tokens in the table FIRST, ask for the live
// ones AFTER, and take over the leases of exactly those tokens that were read and are not live
// (lock_token = ANY($dead)). In the other order, a worker that started in between and has already
// claimed would look dead.
std::vector<std::string> LiveLockTokens(Oid database);

// Whether the worker of a slot was seen within so many milliseconds.
bool SeenWithin(WorkerSlot* worker, uint64 within);

// Whether the worker with this lock token is attached to `database` and was seen within so many
// milliseconds. To be called after the token was read, as above.
bool IsLiving(Oid database, const std::string& lock_token, uint64 within);

// How many workers of `database` are attached and were seen within so many milliseconds.
int CountLiving(Oid database, uint64 within);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_SHARED_SHARED_STATE_H_

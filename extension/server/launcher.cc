#include "extension/server/launcher.h"

#include "extension/base/guard.h"
#include "extension/base/postgres.h"
#include "extension/shared/settings.h"
#include "extension/shared/shared_state.h"
#include "proto/rules/backoff.h"

extern "C" {
#include <access/heapam.h>
#include <access/tableam.h>
#include <postmaster/bgworker.h>
#include <postmaster/interrupt.h>
#include <storage/procsignal.h>
#include <tcop/tcopprot.h>

PGDLLEXPORT void postbox_launcher_main(Datum argument);
}

namespace postbox {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

// The launcher itself, when it fails, is started again after this many seconds.
constexpr int kLauncherRestartSeconds = 5;
// pg_database is read again this often even without a message that it changed.
constexpr milliseconds kRescanInterval = seconds(60);
// If a worker ran this long, its next failure counts as the first.
constexpr milliseconds kGoodRun = seconds(60);
constexpr milliseconds kMaxRestartDelay = seconds(60);
// At most so many databases are probed for the extension at once.
constexpr int kMaxProbes = 4;

enum class Extension { kUnknown, kPresent, kAbsent };

// A worker that a database should have, running or not.
struct Task {
  int slot = -1;  // -1: it is not running
  BackgroundWorkerHandle* handle = nullptr;
  bool stop_requested = false;
  int failures = 0;  // in a row
  Clock::time_point started;
  Clock::time_point not_before;
};

struct Database {
  std::string name;
  Extension extension = Extension::kUnknown;
  bool listed = true;  // connectable and no template, as last read
  std::vector<Task> tasks;
};

// What a worker's slot said when the worker had ended.
struct ExitReport {
  bool attached;  // the worker came up
  ExitReason reason;
  bool epoch_is_current;  // no CREATE or DROP EXTENSION committed since the worker looked
  bool held;              // a session holds the database
};

class Launcher {
 public:
  // One round: take the messages, stop workers that are too many, start those that are missing.
  // Returns how long the launcher may sleep.
  milliseconds Round();

  // Stops the workers of an earlier launcher, for which this one has no handle.
  void StopOrphans();

 private:
  void TakeChanges();
  void ReadDatabases();
  void CollectExits();
  void FreeOrphanSlots();
  static ExitReport TakeReport(Oid oid, const Task& task);
  void TaskEnded(Oid oid, Database& database, Task& task);
  static void TaskFailed(const Database& database, const ExitReport& report, Task& task);
  void Reconcile();
  int Wanted(Oid oid, const Database& database) const;
  void Stop(Task& task);
  // Returns false if the server has no room for another worker now.
  bool Start(Oid oid, const Database& database, int ordinal, Task& task);
  void PostponeStarts(StartProblem problem, const std::string& detail, const char* hint);
  milliseconds SleepTime() const;

  std::map<Oid, Database> databases_;
  bool reread_ = true;
  Clock::time_point next_read_{};
  int probes_ = 0;  // running
  // No starts before this: the server had no room.
  int refusals_ = 0;
  Clock::time_point starts_from_{};
};

milliseconds Delay(int failures) {
  const pubsub::BackoffPolicy policy{milliseconds(settings().restart_delay), 2.0, kMaxRestartDelay};
  return pubsub::BackoffDelay(policy, failures, pubsub::JitterRandom());
}

struct Reservation {
  int slot;  // -1: none is free
  uint64 launch;
};

// kFree -> kStarting: the slot is this start's until its worker has come and gone, or FreeSlot().
Reservation ReserveSlot(Oid database, int ordinal) {
  SharedState* state = shared_state();
  Reservation reservation{-1, 0};
  LWLockAcquire(SharedStateLock(), LW_EXCLUSIVE);
  for (int i = 0; i < kMaxWorkers && reservation.slot < 0; ++i) {
    if (state->workers[i].state == SlotState::kFree) reservation.slot = i;
  }
  if (reservation.slot >= 0) {
    WorkerSlot& slot = state->workers[reservation.slot];
    reservation.launch = state->next_launch++;
    slot.state = SlotState::kStarting;
    slot.exit_reason = ExitReason::kFailed;
    slot.pid = 0;
    slot.ordinal = ordinal;
    slot.launch = reservation.launch;
    slot.token = 0;
    slot.extension_epoch = 0;
    slot.started_at = 0;
    pg_atomic_write_u32(&slot.proc_number, kNobody);
    pg_atomic_write_u32(&slot.database, database);
    const uint32 end = static_cast<uint32>(reservation.slot) + 1;
    if (pg_atomic_read_u32(&state->slots_in_use) < end) {
      pg_atomic_write_u32(&state->slots_in_use, end);
    }
  }
  LWLockRelease(SharedStateLock());
  return reservation;
}

// Under the lock in exclusive mode. No process may be attached to the slot.
void FreeSlot(WorkerSlot* slot) {
  slot->state = SlotState::kFree;
  slot->pid = 0;
  pg_atomic_write_u32(&slot->database, InvalidOid);
  pg_atomic_write_u32(&slot->proc_number, kNobody);
}

// Asks the postmaster for the worker of a reserved slot. nullptr if the server has no room for
// another background worker.
BackgroundWorkerHandle* RegisterWorker(Oid database, int ordinal, const Reservation& reservation) {
  BackgroundWorker worker{};
  worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
  worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
  worker.bgw_restart_time = BGW_NEVER_RESTART;
  worker.bgw_notify_pid = MyProcPid;
  worker.bgw_main_arg = Int32GetDatum(reservation.slot);
  snprintf(worker.bgw_library_name, sizeof worker.bgw_library_name, "postbox_worker");
  snprintf(worker.bgw_function_name, sizeof worker.bgw_function_name, "postbox_publisher_main");
  snprintf(worker.bgw_name, sizeof worker.bgw_name, "postbox publisher %d for database %u", ordinal,
           database);
  snprintf(worker.bgw_type, sizeof worker.bgw_type, "postbox publisher");
  std::memcpy(worker.bgw_extra, &reservation.launch, sizeof reservation.launch);
  return Pg([&worker]() -> BackgroundWorkerHandle* {
    BackgroundWorkerHandle* result = nullptr;
    MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
    const bool registered = RegisterDynamicBackgroundWorker(&worker, &result);
    MemoryContextSwitchTo(old);
    return registered ? result : nullptr;
  });
}

void NoteStartProblem(StartProblem problem) {
  LWLockAcquire(SharedStateLock(), LW_EXCLUSIVE);
  shared_state()->start_problem = problem;
  LWLockRelease(SharedStateLock());
}

void Launcher::StopOrphans() {
  SharedState* state = shared_state();
  LWLockAcquire(SharedStateLock(), LW_EXCLUSIVE);
  for (WorkerSlot& slot : state->workers) {
    if (slot.pid != 0) {
      kill(slot.pid, SIGTERM);
    } else if (slot.state == SlotState::kStarting) {
      slot.state = SlotState::kExited;  // its worker, if it still comes up, sees this and leaves
    }
  }
  LWLockRelease(SharedStateLock());
}

milliseconds Launcher::Round() {
  TakeChanges();
  CollectExits();
  if (reread_ || Clock::now() >= next_read_) ReadDatabases();
  Reconcile();
  return SleepTime();
}

void Launcher::TakeChanges() {
  SharedState* state = shared_state();
  Oid changed[kMaxExtensionChanges];
  LWLockAcquire(SharedStateLock(), LW_EXCLUSIVE);
  const int count = state->extension_change_count;
  std::copy_n(state->extension_changes, count, changed);
  const bool overflow = state->extension_changes_overflow;
  reread_ = reread_ || state->databases_changed;
  state->extension_change_count = 0;
  state->extension_changes_overflow = false;
  state->databases_changed = false;
  LWLockRelease(SharedStateLock());

  for (auto& [oid, database] : databases_) {
    const bool has_changed =
        overflow || std::find(changed, changed + count, oid) != changed + count;
    if (has_changed && database.extension == Extension::kAbsent)
      database.extension = Extension::kUnknown;
  }
}

// What the scan of pg_database yields: plain data, since an error may jump over it.
struct DatabaseRow {
  Oid oid;
  NameData name;
};
struct DatabaseRows {
  DatabaseRow* rows;
  int count;
};

// The databases in which a worker could run, in a transaction of its own; the rows are allocated in
// `context`, which outlives it. Call it inside Pg().
DatabaseRows ScanDatabases(MemoryContext context) {
  DatabaseRows result{nullptr, 0};
  int room = 0;
  StartTransactionCommand();
  (void)GetTransactionSnapshot();
  Relation catalog = table_open(DatabaseRelationId, AccessShareLock);
  TableScanDesc scan = table_beginscan_catalog(catalog, 0, nullptr);
  HeapTuple tuple;
  while (HeapTupleIsValid(tuple = heap_getnext(scan, ForwardScanDirection))) {
    const auto* row = reinterpret_cast<Form_pg_database>(GETSTRUCT(tuple));
    // -2 marks a database whose DROP was interrupted: no session can connect.
    if (!row->datallowconn || row->datistemplate || row->datconnlimit == -2) continue;
    if (result.count == room) {
      room = room == 0 ? 16 : room * 2;
      auto* bigger =
          static_cast<DatabaseRow*>(MemoryContextAlloc(context, room * sizeof(DatabaseRow)));
      if (result.count > 0) memcpy(bigger, result.rows, result.count * sizeof(DatabaseRow));
      result.rows = bigger;
    }
    result.rows[result.count].oid = row->oid;
    result.rows[result.count].name = row->datname;
    ++result.count;
  }
  table_endscan(scan);
  table_close(catalog, AccessShareLock);
  CommitTransactionCommand();
  return result;
}

void Launcher::ReadDatabases() {
  MemoryContext context =
      Pg([] { return AllocSetContextCreate(TopMemoryContext, "postbox", ALLOCSET_DEFAULT_SIZES); });
  const DatabaseRows found = Pg([context] { return ScanDatabases(context); });
  for (auto& [oid, database] : databases_) database.listed = false;
  for (int i = 0; i < found.count; ++i) {
    Database& database = databases_[found.rows[i].oid];
    database.listed = true;
    database.name = NameStr(found.rows[i].name);
  }
  MemoryContextDelete(context);
  reread_ = false;
  next_read_ = Clock::now() + kRescanInterval;
}

void Launcher::CollectExits() {
  FreeOrphanSlots();
  for (auto& [oid, database] : databases_) {
    for (Task& task : database.tasks) {
      if (task.slot < 0) continue;
      pid_t pid = 0;
      // Only when the postmaster has seen the end is its own slot free for the next start.
      const BgwHandleStatus status =
          Pg([&task, &pid] { return GetBackgroundWorkerPid(task.handle, &pid); });
      if (status == BGWH_STOPPED) {
        TaskEnded(oid, database, task);
      } else if (database.extension != Extension::kPresent) {
        LWLockAcquire(SharedStateLock(), LW_SHARED);
        const bool running = shared_state()->workers[task.slot].state == SlotState::kRunning;
        LWLockRelease(SharedStateLock());
        if (running) database.extension = Extension::kPresent;
      }
    }
  }
  std::erase_if(databases_, [](const auto& entry) {
    const Database& database = entry.second;
    return !database.listed && std::none_of(database.tasks.begin(), database.tasks.end(),
                                            [](const Task& task) { return task.slot >= 0; });
  });
}

// Slots of an earlier launcher's workers: this launcher has no task for them.
void Launcher::FreeOrphanSlots() {
  SharedState* state = shared_state();
  std::array<bool, kMaxWorkers> ours{};
  for (auto& [oid, database] : databases_) {
    for (Task& task : database.tasks) {
      if (task.slot >= 0) ours[task.slot] = true;
    }
  }
  LWLockAcquire(SharedStateLock(), LW_EXCLUSIVE);
  for (int i = 0; i < kMaxWorkers; ++i) {
    WorkerSlot& slot = state->workers[i];
    if (!ours[i] && slot.state == SlotState::kExited) FreeSlot(&slot);
  }
  LWLockRelease(SharedStateLock());
}

// Reads what the slot says and frees it.
ExitReport Launcher::TakeReport(Oid oid, const Task& task) {
  SharedState* state = shared_state();
  LWLockAcquire(SharedStateLock(), LW_EXCLUSIVE);
  WorkerSlot& slot = state->workers[task.slot];
  const ExitReport report{slot.token != 0, slot.exit_reason,
                          slot.extension_epoch == pg_atomic_read_u64(&state->extension_epoch),
                          IsHeld(state, oid)};
  FreeSlot(&slot);
  uint32 end = kMaxWorkers;
  while (end > 0 && state->workers[end - 1].state == SlotState::kFree) --end;
  pg_atomic_write_u32(&state->slots_in_use, end);
  LWLockRelease(SharedStateLock());
  return report;
}

void Launcher::TaskEnded(Oid oid, Database& database, Task& task) {
  const ExitReport report = TakeReport(oid, task);
  Pg([&task] { pfree(task.handle); });
  const Clock::time_point now = Clock::now();
  const bool wanted_to_stop = task.stop_requested || report.held;
  if (now - task.started >= kGoodRun) task.failures = 0;
  task.slot = -1;
  task.handle = nullptr;
  task.stop_requested = false;
  task.not_before = now;

  if (report.reason == ExitReason::kNoExtension) {
    database.extension = report.epoch_is_current ? Extension::kAbsent : Extension::kUnknown;
    task.failures = 0;
  } else if (wanted_to_stop) {
    // Not a failure: it may start again at once, when it is wanted.
  } else if (report.reason == ExitReason::kStopped) {
    // Terminated by another session: one that held the database for a moment, or an administrator.
    task.failures = 0;
    task.not_before = now + milliseconds(settings().restart_delay);
  } else {
    TaskFailed(database, report, task);
  }
}

void Launcher::TaskFailed(const Database& database, const ExitReport& report, Task& task) {
  ++task.failures;
  const milliseconds delay = Delay(task.failures);
  task.not_before = Clock::now() + delay;
  Pg([&database, &report, &task, delay] {
    ereport(LOG, (errmsg("postbox publisher of database \"%s\" failed, starting it again in %ld ms",
                         database.name.c_str(), static_cast<long>(delay.count())),
                  errdetail(report.attached ? "It has failed %d times in a row."
                                            : "It did not come up, %d times in a row.",
                            task.failures)));
  });
}

int Launcher::Wanted(Oid oid, const Database& database) const {
  if (!database.listed || database.extension == Extension::kAbsent) return 0;
  LWLockAcquire(SharedStateLock(), LW_SHARED);
  const bool held = IsHeld(shared_state(), oid);
  LWLockRelease(SharedStateLock());
  if (held) return 0;
  return database.extension == Extension::kPresent ? settings().publishers
                                                   : std::min(settings().publishers, 1);
}

void Launcher::Reconcile() {
  probes_ = 0;
  for (const auto& [oid, database] : databases_) {
    if (database.extension == Extension::kUnknown && !database.tasks.empty() &&
        database.tasks[0].slot >= 0) {
      ++probes_;
    }
  }
  for (auto& [oid, database] : databases_) {
    const int wanted = Wanted(oid, database);
    if (static_cast<int>(database.tasks.size()) < wanted) database.tasks.resize(wanted);
    for (int ordinal = 0; ordinal < static_cast<int>(database.tasks.size()); ++ordinal) {
      Task& task = database.tasks[ordinal];
      if (task.slot >= 0) {
        if (ordinal >= wanted) Stop(task);
        continue;
      }
      const Clock::time_point now = Clock::now();
      if (ordinal >= wanted || now < task.not_before || now < starts_from_) continue;
      const bool probe = database.extension == Extension::kUnknown;
      if (probe && probes_ >= kMaxProbes) continue;
      if (Start(oid, database, ordinal, task) && probe) ++probes_;
    }
  }
}

void Launcher::Stop(Task& task) {
  if (task.stop_requested) return;
  task.stop_requested = true;
  Pg([&task] { TerminateBackgroundWorker(task.handle); });
}

bool Launcher::Start(Oid oid, const Database& database, int ordinal, Task& task) {
  const Reservation reservation = ReserveSlot(oid, ordinal);
  if (reservation.slot < 0) {
    PostponeStarts(StartProblem::kNoWorkerSlot,
                   "All " + std::to_string(kMaxWorkers) + " worker slots of postbox are in use.",
                   "Lower postbox.publishers, or spread the databases over several servers.");
    return false;
  }
  BackgroundWorkerHandle* handle = RegisterWorker(oid, ordinal, reservation);
  if (handle == nullptr) {
    LWLockAcquire(SharedStateLock(), LW_EXCLUSIVE);
    FreeSlot(&shared_state()->workers[reservation.slot]);
    LWLockRelease(SharedStateLock());
    PostponeStarts(
        StartProblem::kNoServerSlot,
        "All background worker slots of the server are in use (max_worker_processes is " +
            std::to_string(max_worker_processes) + ").",
        "Raise max_worker_processes (needs a restart), or lower postbox.publishers.");
    return false;
  }
  refusals_ = 0;
  NoteStartProblem(StartProblem::kNone);
  task.slot = reservation.slot;
  task.handle = handle;
  task.stop_requested = false;
  task.started = Clock::now();
  Pg([&database] {
    ereport(DEBUG1, (errmsg_internal("postbox starts a publisher for database \"%s\"",
                                     database.name.c_str())));
  });
  return true;
}

void Launcher::PostponeStarts(StartProblem problem, const std::string& detail, const char* hint) {
  ++refusals_;
  NoteStartProblem(problem);
  const milliseconds delay = Delay(refusals_);
  starts_from_ = Clock::now() + delay;
  Pg([&detail, hint, delay] {
    ereport(WARNING, (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
                      errmsg("could not start all postbox publishers, trying again in %ld ms",
                             static_cast<long>(delay.count())),
                      errdetail("%s", detail.c_str()), errhint("%s", hint)));
  });
}

milliseconds Launcher::SleepTime() const {
  Clock::time_point wake = next_read_;
  for (const auto& [oid, database] : databases_) {
    // A database that waits for its probe gets its turn when another probe has ended, which sets
    // the latch.
    if (database.extension == Extension::kUnknown && probes_ >= kMaxProbes) continue;
    const size_t wanted = std::min<size_t>(Wanted(oid, database), database.tasks.size());
    for (size_t ordinal = 0; ordinal < wanted; ++ordinal) {
      const Task& task = database.tasks[ordinal];
      if (task.slot < 0) wake = std::min(wake, std::max(task.not_before, starts_from_));
    }
  }
  const auto left = std::chrono::ceil<milliseconds>(wake - Clock::now());
  return std::clamp<milliseconds>(left, milliseconds(10), kRescanInterval);
}

void ClearLauncher(int /*code*/, Datum /*argument*/) {
  pg_atomic_write_u32(&shared_state()->launcher_proc_number, kNobody);
}

void Run() {
  const uint32 wait_event = WaitEvent("PostboxLauncher");
  Launcher launcher;
  launcher.StopOrphans();
  for (;;) {
    Pg([] {
      CHECK_FOR_INTERRUPTS();
      if (ConfigReloadPending != 0) {
        ConfigReloadPending = 0;
        ProcessConfigFile(PGC_SIGHUP);
      }
    });
    if (ShutdownRequestPending != 0) return;
    const milliseconds sleep = launcher.Round();
    Pg([sleep, wait_event] {
      (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
                      static_cast<long>(sleep.count()), wait_event);
      ResetLatch(MyLatch);
    });
  }
}

}  // namespace

void RegisterLauncher() {
  BackgroundWorker worker{};
  worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
  worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
  worker.bgw_restart_time = kLauncherRestartSeconds;
  snprintf(worker.bgw_library_name, sizeof worker.bgw_library_name, "postbox");
  snprintf(worker.bgw_function_name, sizeof worker.bgw_function_name, "postbox_launcher_main");
  snprintf(worker.bgw_name, sizeof worker.bgw_name, "postbox launcher");
  snprintf(worker.bgw_type, sizeof worker.bgw_type, "postbox launcher");
  RegisterBackgroundWorker(&worker);
}

}  // namespace postbox

extern "C" void postbox_launcher_main(Datum /*argument*/) {
  using namespace postbox;  // NOLINT(google-build-using-namespace): the entry has no namespace
  pqsignal(SIGHUP, SignalHandlerForConfigReload);
  pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
  pqsignal(SIGINT, SIG_IGN);  // there is no query to cancel
  BackgroundWorkerUnblockSignals();
  before_shmem_exit(ClearLauncher, 0);
  BackgroundWorkerInitializeConnection(nullptr, nullptr, 0);
  pgstat_report_appname("postbox launcher");
  pg_atomic_write_u32(&shared_state()->launcher_proc_number, static_cast<uint32>(MyProcIndex()));
  Guarded([] { Run(); });
  // Exit code 1: the postmaster starts the launcher again if an administrator terminated it.
  proc_exit(1);
}

#include "extension/lifecycle/launcher.h"

#include "extension/base/guard.h"
#include "extension/base/postgres.h"
#include "extension/lifecycle/database_scan.h"
#include "extension/lifecycle/shortage.h"
#include "extension/lifecycle/worker_slots.h"
#include "extension/rules/backoff.h"
#include "extension/rules/turns.h"
#include "extension/shared/metrics.h"
#include "extension/shared/settings.h"
#include "extension/shared/shared_state.h"
#include "extension/shared/time_scale.h"

extern "C" {
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

// A launcher that fails again and again begins once in this time. It waits for that itself: the
// postmaster is to start it at once. (Until 15, one that misses the end of a process between two
// looks at its clock sleeps on for up to a minute, if nothing else wakes it.)
constexpr milliseconds kBetweenStarts = seconds(5);
// pg_database is read again this often even without a message that it changed.
constexpr milliseconds kRescanInterval = seconds(60);
// If a worker ran this long, its next failure counts as the first.
constexpr milliseconds kGoodRun = seconds(60);
constexpr milliseconds kMaxRestartDelay = seconds(60);
// At most so many databases are probed for the extension at once.
constexpr int kMaxProbes = 4;
// A refused start of a database's only worker is repeated after this.
constexpr milliseconds kRefusalDelay = seconds(1);
// While databases wait and no worker has to give up its slot yet, it is looked again after this.
constexpr milliseconds kLookAgain(250);
// A worker that was asked to give up its slot and has not left is told to after this.
constexpr milliseconds kYieldPatience = seconds(30);
// A database of which it is not known whether it has the extension is named in the log after this.
constexpr milliseconds kNamedAfter = seconds(5);

enum class Extension { kUnknown, kPresent, kAbsent };

// A worker that a database should have, running or not.
struct Task {
  int slot = -1;  // -1: it is not running
  BackgroundWorkerHandle* handle = nullptr;
  bool stop_requested = false;
  std::optional<Clock::time_point> asked_to_yield;
  bool told = false;  // the worker has found the extension, and what it says is known
  int failures = 0;   // in a row
  Clock::time_point started;
  Clock::time_point not_before;

  bool runs() const { return slot >= 0; }
  bool leaves() const { return stop_requested || asked_to_yield.has_value(); }
};

struct Database {
  std::string name;
  Extension extension = Extension::kUnknown;
  bool listed = true;            // connectable and no template, as last read
  bool changed = false;          // its settings, since its last worker was started
  bool did_not_come_up = false;  // its last worker
  int publishers = kAsServer;
  std::vector<Task> tasks;

  // For the turns, while it has no worker.
  Clock::time_point unserved_since = Clock::now();
  bool may_have_work = true;
  Clock::time_point look_at;

  bool served() const {
    return std::any_of(tasks.begin(), tasks.end(), [](const Task& task) { return task.runs(); });
  }
  // Whether a worker would probably find something to do.
  bool needs_turn() const { return extension == Extension::kUnknown || may_have_work; }
};

class Launcher {
 public:
  // One round: take the messages, stop workers that are too many, start those that are missing.
  // Returns how long the launcher may sleep.
  milliseconds Round();

 private:
  void TakeChanges();
  void ReadDatabases();
  void CollectExits();
  void HearFrom(Oid oid, Database& database, Task& task);
  void TaskEnded(Oid oid, Database& database, Task& task);
  static void TaskFailed(Database& database, const ExitReport& report, Task& task);
  void Reconcile();
  int Wanted(Oid oid, const Database& database) const;
  void StopUnwanted();
  // First every database that has none gets a worker, then each gets the others that it lacks.
  void StartOnly();
  void StartOthers();
  std::vector<std::pair<Oid, Database*>> Unserved();
  static void Stop(Task& task);
  // Returns false if there is no slot for another worker now.
  bool Start(Oid oid, Database& database, int ordinal, Task& task);
  void Refused(StartProblem problem);
  // Asks as many workers to give up their slots as databases wait that have a right to one.
  void MakeRoom();
  std::size_t CountEntitled();
  void ShowShortage();
  milliseconds SleepTime() const;

  std::map<Oid, Database> databases_;
  bool reread_ = true;
  Clock::time_point next_read_{};
  int probes_ = 0;  // running
  // There was no slot: no starts before these times, of a database's only worker and of others.
  Clock::time_point only_from_{};
  Clock::time_point others_from_{};
  int refusals_ = 0;      // of others, in a row
  bool refused_ = false;  // in this round
  StartProblem problem_ = StartProblem::kNone;
  // In this round: those that wait for a slot, and when to see about it again.
  std::vector<Oid> waiting_;
  Clock::time_point turns_at_{};
  std::vector<Oid> shown_;  // as unserved
  Shortage shortage_;
};

milliseconds Delay(int failures) {
  const pubsub::BackoffPolicy policy{milliseconds(settings().restart_delay), 2.0, kMaxRestartDelay};
  return pubsub::BackoffDelay(policy, failures, pubsub::JitterRandom());
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
    if (!has_changed) continue;
    database.changed = true;
    // A worker that runs tells what is new; otherwise one has to look.
    if (database.extension == Extension::kAbsent || Wanted(oid, database) == 0) {
      database.extension = Extension::kUnknown;
    }
  }
}

void Launcher::ReadDatabases() {
  for (auto& [oid, database] : databases_) database.listed = false;
  for (ListedDatabase& found : ListDatabases()) {
    Database& database = databases_[found.oid];
    database.listed = true;
    database.name = std::move(found.name);
  }
  ForgetMetricsOf([&](Oid oid) { return !databases_.contains(oid) || !databases_[oid].listed; });
  reread_ = false;
  next_read_ = Clock::now() + Scaled(kRescanInterval);
}

void Launcher::CollectExits() {
  std::array<bool, kMaxWorkers> ours{};
  for (auto& [oid, database] : databases_) {
    for (Task& task : database.tasks) {
      if (task.runs()) ours[task.slot] = true;
    }
  }
  FreeOrphanSlots(ours);
  for (auto& [oid, database] : databases_) {
    for (Task& task : database.tasks) {
      if (!task.runs()) continue;
      pid_t pid = 0;
      // Only when the postmaster has seen the end is its own slot free for the next start.
      const BgwHandleStatus status =
          Pg([&task, &pid] { return GetBackgroundWorkerPid(task.handle, &pid); });
      if (status == BGWH_STOPPED) {
        TaskEnded(oid, database, task);
      } else {
        HearFrom(oid, database, task);
      }
    }
  }
  std::erase_if(databases_,
                [](const auto& entry) { return !entry.second.listed && !entry.second.served(); });
}

// What a worker says that runs.
void Launcher::HearFrom(Oid oid, Database& database, Task& task) {
  const SlotNews news = ReadSlot(task.slot);
  if (!news.running) return;
  database.publishers = news.publishers;
  if (task.told) return;
  task.told = true;
  database.did_not_come_up = false;
  database.extension = Extension::kPresent;
  // It reads its outboxes now. Others may have the same mark.
  if (!WorkIsMarked(oid)) return;
  for (auto& [other_oid, other] : databases_) {
    if (!other.served() && WorkIsMarked(other_oid)) other.may_have_work = true;
  }
  ClearWorkMark(oid);
}

void Launcher::TaskEnded(Oid oid, Database& database, Task& task) {
  const ExitReport report = TakeReport(oid, task.slot);
  Pg([&task] { pfree(task.handle); });
  const Clock::time_point now = Clock::now();
  const bool wanted_to_leave = task.leaves() || report.held;
  if (now - task.started >= kGoodRun) task.failures = 0;
  task.slot = -1;
  task.handle = nullptr;
  task.stop_requested = false;
  task.asked_to_yield.reset();
  task.not_before = now;
  // There is a slot now.
  only_from_ = others_from_ = now;
  if (!database.served()) {
    database.unserved_since = now;
    database.look_at = now + kLookInterval;
    database.may_have_work = report.work_left;
  }

  if (report.reason == ExitReason::kNoExtension) {
    database.extension = report.epoch_is_current ? Extension::kAbsent : Extension::kUnknown;
    task.failures = 0;
  } else if (report.reason == ExitReason::kNotWanted) {
    database.extension = Extension::kPresent;
    database.publishers = report.publishers;
    task.failures = 0;
    task.not_before = now + milliseconds(settings().restart_delay);
  } else if (wanted_to_leave) {
    // Not a failure: it may start again at once, when it is wanted.
  } else if (report.reason == ExitReason::kStopped) {
    // Terminated by another session: one that held the database for a moment, or an administrator.
    task.failures = 0;
    task.not_before = now + milliseconds(settings().restart_delay);
  } else {
    TaskFailed(database, report, task);
  }
  // Its settings have changed since, postbox.publishers perhaps, and no worker is left that could
  // say so: the next one does, even if none is wanted by what is known.
  if (database.changed && !database.served() && database.extension == Extension::kPresent) {
    database.extension = Extension::kUnknown;
  }
}

void Launcher::TaskFailed(Database& database, const ExitReport& report, Task& task) {
  ++task.failures;
  database.did_not_come_up = !report.attached;
  const milliseconds delay = Delay(task.failures);
  task.not_before = Clock::now() + delay;
  Pg([&database, &report, &task, delay] {
    ereport(LOG, (errmsg("postbox publisher of database \"%s\" failed, starting it again in %ld ms",
                         database.name.c_str(), static_cast<long>(delay.count())),
                  errdetail(report.attached ? "It has failed %d times in a row."
                                            : "It has failed to start %d times in a row.",
                            task.failures),
                  report.attached ? 0 : errhint("%s", RemedyOf(StartProblem::kDidNotComeUp))));
  });
}

int Launcher::Wanted(Oid oid, const Database& database) const {
  if (!database.listed || database.extension == Extension::kAbsent) return 0;
  LWLockAcquire(SharedStateLock(), LW_SHARED);
  const bool held = IsHeld(shared_state(), oid);
  LWLockRelease(SharedStateLock());
  if (held) return 0;
  // Also if postbox.publishers is 0: the database may have its own value.
  if (database.extension == Extension::kUnknown) return 1;
  return database.publishers == kAsServer ? settings().publishers : database.publishers;
}

void Launcher::Reconcile() {
  refused_ = false;
  waiting_.clear();
  turns_at_ = Clock::time_point::max();
  StopUnwanted();
  StartOnly();
  StartOthers();
  MakeRoom();
  ShowShortage();
}

void Launcher::StopUnwanted() {
  probes_ = 0;
  for (auto& [oid, database] : databases_) {
    const size_t wanted = static_cast<size_t>(Wanted(oid, database));
    if (database.tasks.size() < wanted) database.tasks.resize(wanted);
    for (size_t ordinal = wanted; ordinal < database.tasks.size(); ++ordinal) {
      if (database.tasks[ordinal].runs()) Stop(database.tasks[ordinal]);
    }
    for (Task& task : database.tasks) {
      if (!task.runs() || !task.asked_to_yield.has_value()) continue;
      if (Clock::now() - *task.asked_to_yield > kYieldPatience) Stop(task);
    }
    if (database.extension == Extension::kUnknown && database.served()) ++probes_;
  }
}

// The databases that should have a worker now and have none: those with work first, and of these
// the one that has waited longest.
std::vector<std::pair<Oid, Database*>> Launcher::Unserved() {
  const Clock::time_point now = Clock::now();
  std::vector<std::pair<Oid, Database*>> found;
  for (auto& [oid, database] : databases_) {
    if (database.served() || Wanted(oid, database) == 0) continue;
    if (database.tasks[0].not_before > now) continue;
    if (WorkIsMarked(oid)) database.may_have_work = true;
    found.emplace_back(oid, &database);
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    if (a.second->needs_turn() != b.second->needs_turn()) return a.second->needs_turn();
    return a.second->unserved_since < b.second->unserved_since;
  });
  return found;
}

void Launcher::StartOnly() {
  for (const auto& [oid, database] : Unserved()) {
    const bool probe = database->extension == Extension::kUnknown;
    if (probe && probes_ >= kMaxProbes) continue;
    if (Clock::now() >= only_from_ && Start(oid, *database, 0, database->tasks[0])) {
      if (probe) ++probes_;
      continue;
    }
    if (refused_) only_from_ = Clock::now() + kRefusalDelay;
    waiting_.push_back(oid);
  }
}

void Launcher::StartOthers() {
  // A slot that comes free is for those that have none.
  if (!waiting_.empty()) return;
  for (auto& [oid, database] : databases_) {
    if (!database.served() || database.extension == Extension::kUnknown) continue;
    const int wanted = Wanted(oid, database);
    for (int ordinal = 0; ordinal < wanted; ++ordinal) {
      Task& task = database.tasks[ordinal];
      const Clock::time_point now = Clock::now();
      if (task.runs() || now < task.not_before || now < others_from_) continue;
      if (Start(oid, database, ordinal, task)) {
        refusals_ = 0;
        continue;
      }
      others_from_ = now + Delay(++refusals_);
    }
  }
}

void Launcher::Stop(Task& task) {
  if (task.stop_requested) return;
  task.stop_requested = true;
  Pg([&task] { TerminateBackgroundWorker(task.handle); });
}

bool Launcher::Start(Oid oid, Database& database, int ordinal, Task& task) {
  const Reservation reservation = ReserveSlot(oid, ordinal);
  if (reservation.slot < 0) {
    Refused(StartProblem::kNoWorkerSlot);
    return false;
  }
  BackgroundWorkerHandle* handle = RegisterWorker(oid, ordinal, reservation);
  if (handle == nullptr) {
    GiveBack(reservation);
    Refused(StartProblem::kNoServerSlot);
    return false;
  }
  task.slot = reservation.slot;
  task.handle = handle;
  task.told = false;
  task.started = Clock::now();
  database.changed = false;
  Pg([&database] {
    ereport(DEBUG1, (errmsg_internal("postbox starts a publisher for database \"%s\"",
                                     database.name.c_str())));
  });
  return true;
}

void Launcher::Refused(StartProblem problem) {
  refused_ = true;
  problem_ = problem;
  NoteStartProblem(problem);
}

std::size_t Launcher::CountEntitled() {
  const Clock::time_point now = Clock::now();
  std::size_t entitled = 0;
  for (const Oid oid : waiting_) {
    const Database& database = databases_[oid];
    Clock::time_point at = database.unserved_since + Scaled(kSlotPatience);
    if (!database.needs_turn()) at = std::max(at, database.look_at);
    if (at <= now) {
      ++entitled;
    } else {
      turns_at_ = std::min(turns_at_, at);
    }
  }
  return entitled;
}

void Launcher::MakeRoom() {
  const std::size_t entitled = CountEntitled();
  std::vector<Turn> turns;
  std::vector<std::pair<Database*, Task*>> who;
  std::size_t leaving = 0;
  const Clock::time_point now = Clock::now();
  for (auto& [oid, database] : databases_) {
    bool spare = false;
    for (Task& task : database.tasks) {
      if (!task.runs()) continue;
      leaving += task.leaves() ? 1 : 0;
      turns.push_back(
          {.spare = spare,
           .leaving = task.leaves(),
           .held = Unscaled(std::chrono::duration_cast<milliseconds>(now - task.started)),
           .idle = Unscaled(ReadSlot(task.slot).idle)});
      who.emplace_back(&database, &task);
      // The first one stays.
      spare = spare || !task.leaves();
    }
  }
  const auto most = static_cast<std::size_t>(settings().max_workers);
  const std::size_t surplus = turns.size() > most ? turns.size() - most : 0;
  for (; leaving < std::max(entitled, surplus); ++leaving) {
    const std::size_t found = WhoYields(turns);
    if (found == kNobodyYields) {
      turns_at_ = std::min(turns_at_, now + kLookAgain);
      return;
    }
    turns[found].leaving = true;
    Task& task = *who[found].second;
    task.asked_to_yield = now;
    AskToYield(&shared_state()->workers[task.slot]);
  }
}

// To sessions and in the log.
void Launcher::ShowShortage() {
  shortage_.NotePublishers(settings().publishers);
  std::vector<Oid> shown = waiting_;
  for (auto& [oid, database] : databases_) {
    if (!database.did_not_come_up || Wanted(oid, database) == 0) continue;
    if (std::find(waiting_.begin(), waiting_.end(), oid) == waiting_.end()) shown.push_back(oid);
  }
  if (shown != shown_) {
    const bool none_waits = waiting_.empty() && !shown.empty();
    NoteStartProblem(none_waits ? StartProblem::kDidNotComeUp : problem_);
    ShowUnserved(shown);
  }
  shown_ = std::move(shown);
  std::vector<std::string> unserved;
  std::vector<std::string> short_of;
  const Clock::time_point now = Clock::now();
  for (auto& [oid, database] : databases_) {
    if (std::find(waiting_.begin(), waiting_.end(), oid) != waiting_.end()) {
      const bool named =
          database.extension == Extension::kPresent || now - database.unserved_since >= kNamedAfter;
      if (named) unserved.push_back(database.name);
      if (!named) turns_at_ = std::min(turns_at_, database.unserved_since + kNamedAfter);
      continue;
    }
    const auto wanted = std::min<size_t>(Wanted(oid, database), database.tasks.size());
    const bool lacks = std::any_of(
        database.tasks.begin(), database.tasks.begin() + static_cast<std::ptrdiff_t>(wanted),
        [&](const Task& task) { return !task.runs() && task.not_before <= now; });
    if (lacks && database.served()) short_of.push_back(database.name);
  }
  if (waiting_.empty() && short_of.empty() && problem_ != StartProblem::kNone) {
    problem_ = StartProblem::kNone;
    NoteStartProblem(problem_);
  }
  if (unserved.empty() && short_of.empty() && !waiting_.empty()) return;  // they are not known yet
  shortage_.Note(unserved, short_of, problem_, refused_);
}

milliseconds Launcher::SleepTime() const {
  Clock::time_point wake = std::min(next_read_, turns_at_);
  for (const auto& [oid, database] : databases_) {
    // A database that waits for its probe gets its turn when another probe has ended, which sets
    // the latch.
    if (database.extension == Extension::kUnknown && probes_ >= kMaxProbes) continue;
    const bool served = database.served();
    // While others wait for a slot it gets no more.
    if (served && !waiting_.empty()) continue;
    const size_t wanted = std::min<size_t>(Wanted(oid, database), database.tasks.size());
    for (size_t ordinal = 0; ordinal < wanted; ++ordinal) {
      const Task& task = database.tasks[ordinal];
      if (task.runs()) continue;
      wake = std::min(wake, std::max(task.not_before, served ? others_from_ : only_from_));
      if (!served) break;
    }
  }
  const auto left = std::chrono::ceil<milliseconds>(wake - Clock::now());
  return std::clamp<milliseconds>(left, milliseconds(10), kRescanInterval);
}

// Returns false if the launcher is to leave.
bool WaitForTurn() {
  TimestampTz* const started_at = &shared_state()->launcher_started_at;
  const uint32 wait_event = WaitEvent("PostboxLauncher");
  const long most = Scaled(kBetweenStarts).count();
  while (*started_at != 0 && ShutdownRequestPending == 0) {
    const long left = TimestampDifferenceMilliseconds(
        GetCurrentTimestamp(), TimestampTzPlusMilliseconds(*started_at, most));
    if (left == 0 || left > most) break;  // the clock was set back
    Pg([left, wait_event] {
      (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, left, wait_event);
      ResetLatch(MyLatch);
    });
  }
  *started_at = GetCurrentTimestamp();
  return ShutdownRequestPending == 0;
}

void ClearLauncher(int /*code*/, Datum /*argument*/) {
  pg_atomic_write_u32(&shared_state()->launcher_proc_number, kNobody);
}

void Run() {
  const uint32 wait_event = WaitEvent("PostboxLauncher");
  Launcher launcher;
  StopOrphans();
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
  worker.bgw_restart_time = 0;
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
  pqsignal(SIGINT, POSTBOX_IGNORE_SIGNAL);  // there is no query to cancel
  BackgroundWorkerUnblockSignals();
  if (!Guarded([] { return WaitForTurn(); })) proc_exit(1);
  before_shmem_exit(ClearLauncher, 0);
  BackgroundWorkerInitializeConnection(nullptr, nullptr, 0);
  pgstat_report_appname("postbox launcher");
  // A process that starts has the postmaster's settings, and does not hear of others at first.
  ProcessConfigFile(PGC_SIGHUP);
  pg_atomic_write_u32(&shared_state()->launcher_proc_number, static_cast<uint32>(MyProcIndex()));
  Guarded([] { Run(); });
  // Exit code 1: the postmaster starts the launcher again if an administrator terminated it.
  proc_exit(1);
}

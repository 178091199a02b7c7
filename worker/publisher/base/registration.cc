#include "worker/publisher/base/registration.h"

#include "extension/base/guard.h"
#include "extension/shared/exports.h"
#include "extension/shared/metrics.h"
#include "extension/shared/time_scale.h"
#include "extension/trust/worker_session.h"
#include "worker/publisher/base/step_limit.h"

extern "C" {
#include <postmaster/bgworker.h>
#include <postmaster/interrupt.h>
#include <storage/lmgr.h>
}

namespace postbox::publisher {
namespace {

Identity self;
// SharedState::extension_epoch as it was before ExtensionExists() looked.
uint64 epoch_of_look = 0;
std::optional<uint64> loaded_generation;

WorkerSlot* Slot() { return &shared_state()->workers[self.slot]; }

// Runs after the process has left the proc array, so that a database without an attached slot has
// no worker in it, and before it gives up its PGPROC, which the lock needs.
void Detach(int /*code*/, Datum /*argument*/) {
  SharedState* state = shared_state();
  WorkerSlot* slot = Slot();
  LWLockAcquire(SharedStateLock(), LW_EXCLUSIVE);
  const Oid suspect = StepLimit::EndingFor();
  if (OidIsValid(suspect)) {
    NoteSuspect(state, {self.database, suspect});
    // The fault of one outbox: the others do not wait for a worker that fails again and again.
    slot->exit_reason = ExitReason::kStopped;
  }
  pg_atomic_write_u32(&slot->proc_number, kNobody);
  slot->pid = 0;
  slot->state = SlotState::kExited;
  LWLockRelease(SharedStateLock());
  ConditionVariableBroadcast(&state->worker_left);
  WakeLauncher();
  // What it had is free, and the shares of the others are larger.
  WakePublishers(self.database);
}

void SetExitReason(ExitReason reason) {
  LWLockAcquire(SharedStateLock(), LW_EXCLUSIVE);
  Slot()->exit_reason = reason;
  Slot()->extension_epoch = epoch_of_look;
  LWLockRelease(SharedStateLock());
}

}  // namespace

void FindSettings() {
  const Exports* exports = *ExportsVariable();
  if (exports == nullptr || exports->settings_size != sizeof(Settings)) {
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                    errmsg("the running server has loaded another release of postbox"),
                    errhint("Restart the server to finish the upgrade.")));
  }
  UseSettings(exports->settings);
}

void Register(Datum slot_number) {
  FindSettings();
  AttachSharedState();
  SharedState* state = shared_state();
  self.slot = DatumGetInt32(slot_number);
  uint64 launch = 0;
  std::memcpy(&launch, MyBgworkerEntry->bgw_extra, sizeof launch);
  do {
    if (!pg_strong_random(&self.token, sizeof self.token)) {
      ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate a lock token")));
    }
  } while (self.token == 0);
  FormatLockToken(self.token, self.lock_token);

  WorkerSlot* slot = Slot();
  LWLockAcquire(SharedStateLock(), LW_EXCLUSIVE);
  const bool mine = slot->state == SlotState::kStarting && slot->launch == launch;
  const Oid database = pg_atomic_read_u32(&slot->database);
  const bool held = mine && IsHeld(state, database);
  if (held) {
    slot->state = SlotState::kExited;
    slot->exit_reason = ExitReason::kStopped;
  }
  if (mine && !held) {
    self.ordinal = slot->ordinal;
    self.database = database;
    slot->state = SlotState::kAttached;
    slot->exit_reason = ExitReason::kFailed;
    slot->pid = MyProcPid;
    slot->token = self.token;
    slot->started_at = GetCurrentTimestamp();
    slot->serving = false;
    slot->standby_wait_count = 0;
    slot->outage_count = 0;
    pg_atomic_write_u64(&slot->seen_at, MonotonicMilliseconds());
    // Until it has looked for the first time.
    pg_atomic_write_u64(&slot->worked_at, PG_UINT64_MAX);
    pg_atomic_write_u32(&slot->proc_number, static_cast<uint32>(MyProcIndex()));
    // Cannot fail here: a background worker starts with most of the room for callbacks free.
    on_shmem_exit(Detach, 0);
  }
  LWLockRelease(SharedStateLock());
  if (!mine || held) {
    WakeLauncher();
    proc_exit(0);
  }
}

const Identity& identity() { return self; }

void Connect() {
  BackgroundWorkerInitializeConnectionByOid(self.database, InvalidOid, 0);
  PinWorkerSession();
  SetConfigOption("application_name", "postbox publisher", PGC_USERSET, PGC_S_SESSION);
}

bool ExtensionExists() {
  epoch_of_look = pg_atomic_read_u64(&shared_state()->extension_epoch);
  pg_memory_barrier();
  StartTransactionCommand();
  const bool exists = OidIsValid(get_extension_oid("postbox", true));
  CommitTransactionCommand();
  return exists;
}

void LeaveIfExtensionGone() {
  Pg([] {
    if (!ExtensionExists()) LeaveWithoutExtension();
  });
}

// The catalog has no cache, and each transaction comes here.
void ShareExtension() {
  static uint64 looked_at = 0;
  static Oid extension = InvalidOid;
  // Without the library in shared_preload_libraries, as in a test, nothing tells of a change.
  const bool told = shared_state() != nullptr;
  const uint64 generation = told ? ConfigGeneration() : 0;
  pg_memory_barrier();
  if (!OidIsValid(extension) || looked_at != generation || !told) {
    extension = get_extension_oid("postbox", true);
    looked_at = generation;
  }
  if (OidIsValid(extension)) {
    LockDatabaseObject(ExtensionRelationId, extension, 0, AccessShareLock);
  }
}

int TellPublishers() {
  const config_generic* setting = FindSetting("postbox.publishers");
  // What the whole server has the launcher knows better: it hears of a change in any case.
  const bool own = setting != nullptr && setting->source >= PGC_S_GLOBAL;
  LWLockAcquire(SharedStateLock(), LW_EXCLUSIVE);
  Slot()->publishers = own ? settings().publishers : kAsServer;
  LWLockRelease(SharedStateLock());
  return settings().publishers;
}

void NoteWork(bool goes_on) {
  pg_atomic_write_u64(&Slot()->worked_at, goes_on ? PG_UINT64_MAX : MonotonicMilliseconds());
}

bool YieldRequested() { return pg_atomic_read_u32(&Slot()->yield) != 0; }

void Ready() {
  LWLockAcquire(SharedStateLock(), LW_EXCLUSIVE);
  Slot()->state = SlotState::kRunning;
  LWLockRelease(SharedStateLock());
  WakeLauncher();
  // Those that are there have more than their share now.
  WakePublishers(self.database);
}

bool HasWakeUp() { return pg_atomic_read_u32(&Slot()->wake_up) != 0; }

// Every step asks, and mostly there is nothing to take.
WakeSet TakeWakeUp() {
  if (!HasWakeUp()) return {};
  pg_atomic_exchange_u32(&Slot()->wake_up, 0);
  WakeSet::Words words;
  for (std::size_t i = 0; i < WakeSet::kWords; ++i) {
    words[i] = pg_atomic_exchange_u32(&Slot()->woken_for[i], 0);
  }
  return WakeSet(words);
}

void ConfigLoaded(uint64 generation) { loaded_generation = generation; }

bool ConfigIsCurrent() { return !loaded_generation || *loaded_generation == ConfigGeneration(); }

void SetServing(bool serving) {
  LWLockAcquire(SharedStateLock(), LW_EXCLUSIVE);
  Slot()->serving = serving;
  LWLockRelease(SharedStateLock());
}

void ShowStandbyWaits(const std::vector<StandbyWait>& waits) {
  WorkerSlot* slot = Slot();
  LWLockAcquire(SharedStateLock(), LW_EXCLUSIVE);
  slot->standby_wait_count =
      static_cast<int32>(std::min(waits.size(), std::size(slot->standby_waits)));
  std::copy_n(waits.begin(), slot->standby_wait_count, slot->standby_waits);
  if (waits.size() > std::size(slot->standby_waits)) {
    std::end(slot->standby_waits)[-1].publication = 0;
  }
  LWLockRelease(SharedStateLock());
}

namespace {

// Where a publication stands in a slot, perhaps with all those for which there was no room;
// nullptr: nowhere. Under the lock.
OutageSlot* FindOutage(WorkerSlot* slot, uint64 publication) {
  OutageSlot* end = slot->outages + slot->outage_count;
  OutageSlot* found = std::find_if(slot->outages, end, [&](const OutageSlot& outage) {
    return outage.publication == publication || outage.publication == 0;
  });
  return found == end ? nullptr : found;
}

}  // namespace

void ShowOutages(const std::vector<ShownOutage>& outages) {
  WorkerSlot* slot = Slot();
  OutageSlot shown[kMaxOutages] = {};
  const std::size_t count = std::min(outages.size(), std::size(shown));
  for (std::size_t i = 0; i < count; ++i) {
    shown[i].publication = outages[i].publication;
    shown[i].since = outages[i].since;
    shown[i].next_try = outages[i].next_try;
    outages[i].error.copy(shown[i].error, kMaxShownError);
  }
  if (outages.size() > count) shown[count - 1].publication = 0;
  LWLockAcquire(SharedStateLock(), LW_EXCLUSIVE);
  for (std::size_t i = 0; i < count; ++i) {
    const OutageSlot* before = FindOutage(slot, shown[i].publication);
    shown[i].told = before != nullptr && before->told;
  }
  std::copy_n(shown, count, slot->outages);
  slot->outage_count = static_cast<int32>(count);
  LWLockRelease(SharedStateLock());
}

bool TellsOfOutage(uint64 publication) {
  WorkerSlot* slot = Slot();
  bool others = false;
  LWLockAcquire(SharedStateLock(), LW_EXCLUSIVE);
  for (WorkerSlot& other : shared_state()->workers) {
    if (&other == slot || other.pid == 0 || pg_atomic_read_u32(&other.database) != MyDatabaseId) {
      continue;
    }
    const OutageSlot* outage = FindOutage(&other, publication);
    others = others || (outage != nullptr && outage->told);
  }
  OutageSlot* ours = FindOutage(slot, publication);
  if (ours != nullptr && !others) ours->told = true;
  LWLockRelease(SharedStateLock());
  return !others;
}

void ShowProblem(const std::string& problem) {
  LWLockAcquire(SharedStateLock(), LW_EXCLUSIVE);
  SetProblem(Slot(), problem);
  LWLockRelease(SharedStateLock());
}

std::chrono::milliseconds RecordHeartbeat() {
  const uint64 now = MonotonicMilliseconds();
  // A process that reads the old value afterwards has not read what this worker does next.
  const uint64 before = pg_atomic_exchange_u64(&Slot()->seen_at, now);
  return std::chrono::milliseconds(now - before);
}

uint64 LeaseMilliseconds() { return static_cast<uint64>(LeaseTime().count()); }

bool StopRequested() { return ShutdownRequestPending != 0; }

void Leave(bool work_left) {
  LWLockAcquire(SharedStateLock(), LW_EXCLUSIVE);
  Slot()->work_left = work_left;
  LWLockRelease(SharedStateLock());
  SetExitReason(ExitReason::kStopped);
  proc_exit(0);
}

void LeaveUnwanted() {
  SetExitReason(ExitReason::kNotWanted);
  proc_exit(0);
}

void LeaveWithoutExtension() {
  ForgetMetricsOf([](Oid database) { return database == MyDatabaseId; });
  SetExitReason(ExitReason::kNoExtension);
  proc_exit(0);
}

}  // namespace postbox::publisher

#include "extension/lifecycle/worker_slots.h"

#include <csignal>

#include "extension/base/guard.h"
#include "extension/shared/settings.h"

extern "C" {
#include <postmaster/bgworker.h>
}

namespace postbox {
namespace {

// Under the lock in exclusive mode. No process may be attached to the slot.
void FreeSlot(WorkerSlot* slot) {
  slot->state = SlotState::kFree;
  SetProblem(slot, "");
  slot->pid = 0;
  pg_atomic_write_u32(&slot->database, InvalidOid);
  pg_atomic_write_u32(&slot->proc_number, kNobody);
}

// Under the lock in exclusive mode: -1 if there is none, or too many are in use.
int FindFreeSlot(SharedState* state) {
  int free = -1;
  int in_use = 0;
  for (int i = kMaxWorkers - 1; i >= 0; --i) {
    if (state->workers[i].state == SlotState::kFree) {
      free = i;
    } else {
      ++in_use;
    }
  }
  return in_use < settings().max_workers ? free : -1;
}

}  // namespace

Reservation ReserveSlot(Oid database, int ordinal) {
  SharedState* state = shared_state();
  Reservation reservation{-1, 0};
  LWLockAcquire(SharedStateLock(), LW_EXCLUSIVE);
  reservation.slot = FindFreeSlot(state);
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
    slot.publishers = kAsServer;
    slot.work_left = true;
    pg_atomic_write_u32(&slot.wake_up, 0);
    for (pg_atomic_uint32& word : slot.woken_for) pg_atomic_write_u32(&word, 0);
    pg_atomic_write_u32(&slot.yield, 0);
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

void GiveBack(const Reservation& reservation) {
  LWLockAcquire(SharedStateLock(), LW_EXCLUSIVE);
  FreeSlot(&shared_state()->workers[reservation.slot]);
  LWLockRelease(SharedStateLock());
}

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

ExitReport TakeReport(Oid database, int slot_number) {
  SharedState* state = shared_state();
  LWLockAcquire(SharedStateLock(), LW_EXCLUSIVE);
  WorkerSlot& slot = state->workers[slot_number];
  const ExitReport report{slot.token != 0,
                          slot.exit_reason,
                          slot.extension_epoch == pg_atomic_read_u64(&state->extension_epoch),
                          IsHeld(state, database),
                          slot.publishers,
                          slot.work_left || pg_atomic_read_u32(&slot.wake_up) != 0};
  FreeSlot(&slot);
  uint32 end = kMaxWorkers;
  while (end > 0 && state->workers[end - 1].state == SlotState::kFree) --end;
  pg_atomic_write_u32(&state->slots_in_use, end);
  LWLockRelease(SharedStateLock());
  return report;
}

SlotNews ReadSlot(int slot_number) {
  LWLockAcquire(SharedStateLock(), LW_SHARED);
  WorkerSlot& slot = shared_state()->workers[slot_number];
  SlotNews news{slot.state == SlotState::kRunning, slot.publishers, {}};
  LWLockRelease(SharedStateLock());
  const uint64 worked_at = pg_atomic_read_u64(&slot.worked_at);
  const uint64 now = MonotonicMilliseconds();
  if (news.running && worked_at < now) news.idle = std::chrono::milliseconds(now - worked_at);
  return news;
}

void StopOrphans() {
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

void FreeOrphanSlots(const std::array<bool, kMaxWorkers>& ours) {
  SharedState* state = shared_state();
  LWLockAcquire(SharedStateLock(), LW_EXCLUSIVE);
  for (int i = 0; i < kMaxWorkers; ++i) {
    WorkerSlot& slot = state->workers[i];
    if (!ours[i] && slot.state == SlotState::kExited) FreeSlot(&slot);
  }
  LWLockRelease(SharedStateLock());
}

void NoteStartProblem(StartProblem problem) {
  LWLockAcquire(SharedStateLock(), LW_EXCLUSIVE);
  shared_state()->start_problem = problem;
  LWLockRelease(SharedStateLock());
}

void ShowUnserved(const std::vector<Oid>& databases) {
  SharedState* state = shared_state();
  const size_t shown = std::min<size_t>(databases.size(), kMaxUnserved);
  LWLockAcquire(SharedStateLock(), LW_EXCLUSIVE);
  std::copy_n(databases.begin(), shown, state->unserved);
  pg_atomic_write_u32(&state->unserved_count, static_cast<uint32>(databases.size()));
  LWLockRelease(SharedStateLock());
}

bool WorkIsMarked(Oid database) {
  return pg_atomic_read_u32(&shared_state()->work_marks[database % kWorkMarks]) != 0;
}

void ClearWorkMark(Oid database) {
  pg_atomic_write_u32(&shared_state()->work_marks[database % kWorkMarks], 0);
}

}  // namespace postbox

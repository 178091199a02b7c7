#include "extension/shared/shared_state.h"

#include <csignal>

#include "extension/shared/metrics.h"

extern "C" {
#include <common/hashfn.h>
}

namespace postbox {
namespace {

constexpr char kName[] = "postbox";

SharedState* state = nullptr;

void SetLatchOf(uint32 proc_number) {
  if (proc_number != kNobody) {
    // The latch of a proc array entry always exists; at worst it belongs to another process by now.
    SetLatch(&ProcAt(static_cast<int>(proc_number))->procLatch);
  }
}

pg_atomic_uint64* GenerationOfDatabase() {
  return &state->config_generations[MyDatabaseId % kConfigGenerations];
}

}  // namespace

uint64 HashOfName(std::string_view name) {
  const uint64 hash = hash_bytes_extended(reinterpret_cast<const unsigned char*>(name.data()),
                                          static_cast<int>(name.size()), 0);
  return hash == 0 ? 1 : hash;
}

std::string LsnText(XLogRecPtr position) {
  char text[sizeof "FFFFFFFF/FFFFFFFF"];
  snprintf(text, sizeof text, "%X/%X", static_cast<uint32>(position >> 32),
           static_cast<uint32>(position));
  return text;
}

uint64 MonotonicMilliseconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

SharedState* shared_state() { return state; }

LWLock* SharedStateLock() {
  static LWLock* lock = nullptr;
  if (lock == nullptr) lock = &GetNamedLWLockTranche(kName)->lock;
  return lock;
}

void RequestSharedState() {
  RequestAddinShmemSpace(MAXALIGN(sizeof(SharedState)) + MetricsSize());
  // The second one is that of the metrics.
  RequestNamedLWLockTranche(kName, 2);
}

void CreateOrFindSharedState() {
  // After a crash the postmaster comes here again, with new memory.
  state = nullptr;
  bool found = false;
  LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
  auto* memory = static_cast<SharedState*>(ShmemInitStruct(kName, sizeof(SharedState), &found));
  if (!found) {
    std::memset(static_cast<void*>(memory), 0, sizeof(SharedState));
    memory->layout = kSharedStateLayout;
    for (pg_atomic_uint64& generation : memory->config_generations) {
      pg_atomic_init_u64(&generation, 1);
    }
    pg_atomic_init_u64(&memory->extension_epoch, 1);
    for (ConditionVariable& applied : memory->applied) ConditionVariableInit(&applied);
    ConditionVariableInit(&memory->published);
    pg_atomic_init_u32(&memory->launcher_proc_number, kNobody);
    ConditionVariableInit(&memory->worker_left);
    memory->next_launch = 1;
    pg_atomic_init_u32(&memory->slots_in_use, 0);
    pg_atomic_init_u32(&memory->problem_count, 0);
    pg_atomic_init_u32(&memory->unserved_count, 0);
    for (pg_atomic_uint32& mark : memory->work_marks) pg_atomic_init_u32(&mark, 0);
    for (WorkerSlot& worker : memory->workers) {
      pg_atomic_init_u32(&worker.database, InvalidOid);
      pg_atomic_init_u32(&worker.proc_number, kNobody);
      pg_atomic_init_u64(&worker.seen_at, 0);
      pg_atomic_init_u32(&worker.wake_up, 0);
      for (pg_atomic_uint32& word : worker.woken_for) pg_atomic_init_u32(&word, 0);
      pg_atomic_init_u64(&worker.worked_at, 0);
      pg_atomic_init_u32(&worker.yield, 0);
      worker.state = SlotState::kFree;
    }
  }
  // Memory of another release may have none.
  if (memory->layout == kSharedStateLayout) CreateOrFindMetrics();
  LWLockRelease(AddinShmemInitLock);
  state = memory;
}

void AttachSharedState() {
  CreateOrFindSharedState();
  if (state->layout != kSharedStateLayout || !MetricsFit()) {
    ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                    errmsg("the running server has loaded another release of postbox"),
                    errhint("Restart the server to finish the upgrade.")));
  }
}

namespace {

// A word that has it all already is left alone: the worker has yet to take it.
void AddTo(pg_atomic_uint32* words, const WakeSet& outboxes) {
  for (std::size_t i = 0; i < WakeSet::kWords; ++i) {
    const uint32 word = outboxes.words()[i];
    if ((word & ~pg_atomic_read_u32(&words[i])) != 0) pg_atomic_fetch_or_u32(&words[i], word);
  }
}

}  // namespace

bool WakePublishers(Oid database, const WakeSet& outboxes) {
  if (state == nullptr) return false;
  // A worker that is woken must see what was committed: the slots are read after that.
  pg_memory_barrier();
  bool attached = false;
  const uint32 end = pg_atomic_read_u32(&state->slots_in_use);
  for (uint32 i = 0; i < end && i < kMaxWorkers; ++i) {
    WorkerSlot* worker = &state->workers[i];
    if (pg_atomic_read_u32(&worker->database) == database) {
      AddTo(worker->woken_for, outboxes);
      pg_memory_barrier();
      // Before the latch, whose setting is a memory barrier.
      pg_atomic_write_u32(&worker->wake_up, 1);
      // Either a worker that leaves is seen to have left, or the next reader of its slot sees this.
      pg_memory_barrier();
      const uint32 proc_number = pg_atomic_read_u32(&worker->proc_number);
      SetLatchOf(proc_number);
      attached = attached || proc_number != kNobody;
    }
  }
  return attached;
}

void AnnounceWork(Oid database, const WakeSet& outboxes) {
  if (state == nullptr || WakePublishers(database, outboxes)) return;
  pg_atomic_uint32* mark = &state->work_marks[database % kWorkMarks];
  if (pg_atomic_read_u32(mark) != 0) return;
  pg_atomic_write_u32(mark, 1);
  // Otherwise the database waits for no slot.
  if (pg_atomic_read_u32(&state->unserved_count) != 0) WakeLauncher();
}

void AnnouncePublished() {
  if (shared_state() != nullptr) ConditionVariableBroadcast(&shared_state()->published);
}

void WakeLauncher() {
  if (state == nullptr) return;
  SetLatchOf(pg_atomic_read_u32(&state->launcher_proc_number));
}

uint64 ConfigGeneration() {
  return state == nullptr ? 0 : pg_atomic_read_u64(GenerationOfDatabase());
}

void RaiseConfigGeneration() {
  if (state != nullptr) pg_atomic_fetch_add_u64(GenerationOfDatabase(), 1);
}

void NoteSuspect(SharedState* state, const Suspect& suspect) {
  if (state->suspect_count == kMaxSuspects) {
    std::copy(state->suspects + 1, state->suspects + kMaxSuspects, state->suspects);
    --state->suspect_count;
  }
  state->suspects[state->suspect_count++] = suspect;
}

std::vector<Oid> TakeSuspects(Oid database) {
  Oid outboxes[kMaxSuspects];
  int count = 0;
  LWLockAcquire(SharedStateLock(), LW_EXCLUSIVE);
  Suspect* const end = state->suspects + state->suspect_count;
  Suspect* const kept = std::remove_if(state->suspects, end, [&](const Suspect& suspect) {
    if (suspect.database == database) outboxes[count++] = suspect.outbox;
    return suspect.database == database;
  });
  state->suspect_count = static_cast<int32>(kept - state->suspects);
  LWLockRelease(SharedStateLock());
  return {outboxes, outboxes + count};
}

void SetProblem(WorkerSlot* worker, const std::string& problem) {
  std::memset(worker->problem, 0, sizeof worker->problem);
  problem.copy(worker->problem, kMaxShownError);
  const auto count = std::count_if(std::begin(state->workers), std::end(state->workers),
                                   [](const WorkerSlot& one) { return one.problem[0] != '\0'; });
  pg_atomic_write_u32(&state->problem_count, static_cast<uint32>(count));
}

bool IsUnserved(SharedState* state, Oid database) {
  const uint32 count = pg_atomic_read_u32(&state->unserved_count);
  if (count > kMaxUnserved) return true;
  return std::find(state->unserved, state->unserved + count, database) != state->unserved + count;
}

void AskToYield(WorkerSlot* worker) {
  pg_atomic_write_u32(&worker->yield, 1);
  SetLatchOf(pg_atomic_read_u32(&worker->proc_number));
}

bool IsHeld(const SharedState* state, Oid database) {
  return std::any_of(std::begin(state->holds), std::end(state->holds),
                     [database](const Hold& hold) { return hold.database == database; });
}

void StopPublishers(Oid database) {
  if (state == nullptr) return;
  LWLockAcquire(SharedStateLock(), LW_SHARED);
  for (WorkerSlot& worker : state->workers) {
    if (worker.pid != 0 && pg_atomic_read_u32(&worker.database) == database) {
      kill(worker.pid, SIGTERM);
    }
  }
  LWLockRelease(SharedStateLock());
}

bool HasPublishers(Oid database) {
  if (state == nullptr) return false;
  LWLockAcquire(SharedStateLock(), LW_SHARED);
  const bool found = std::any_of(
      std::begin(state->workers), std::end(state->workers), [database](WorkerSlot& worker) {
        return worker.pid != 0 && pg_atomic_read_u32(&worker.database) == database;
      });
  LWLockRelease(SharedStateLock());
  return found;
}

std::vector<std::string> LiveLockTokens(Oid database) {
  std::vector<std::string> result;
  if (state == nullptr) return result;
  uint64 tokens[kMaxWorkers];
  int count = 0;
  LWLockAcquire(SharedStateLock(), LW_SHARED);
  for (WorkerSlot& worker : state->workers) {
    if (worker.pid != 0 && pg_atomic_read_u32(&worker.database) == database) {
      tokens[count++] = worker.token;
    }
  }
  LWLockRelease(SharedStateLock());
  for (int i = 0; i < count; ++i) {
    char text[kLockTokenSize];
    FormatLockToken(tokens[i], text);
    result.emplace_back(text);
  }
  return result;
}

bool SeenWithin(WorkerSlot* worker, uint64 within) {
  return pg_atomic_read_u64(&worker->seen_at) + within >= MonotonicMilliseconds();
}

bool IsLiving(Oid database, const std::string& lock_token, uint64 within) {
  if (state == nullptr) return false;
  bool living = false;
  LWLockAcquire(SharedStateLock(), LW_SHARED);
  for (WorkerSlot& worker : state->workers) {
    if (worker.pid == 0 || pg_atomic_read_u32(&worker.database) != database) continue;
    char text[kLockTokenSize];
    FormatLockToken(worker.token, text);
    if (lock_token == text) living = SeenWithin(&worker, within);
  }
  LWLockRelease(SharedStateLock());
  return living;
}

int CountLiving(Oid database, uint64 within) {
  if (state == nullptr) return 0;
  int count = 0;
  const uint32 end = pg_atomic_read_u32(&state->slots_in_use);
  for (uint32 i = 0; i < end && i < kMaxWorkers; ++i) {
    WorkerSlot* worker = &state->workers[i];
    if (pg_atomic_read_u32(&worker->database) == database &&
        pg_atomic_read_u32(&worker->proc_number) != kNobody && SeenWithin(worker, within)) {
      ++count;
    }
  }
  return count;
}

}  // namespace postbox

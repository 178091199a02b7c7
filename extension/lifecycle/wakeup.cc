#include "extension/lifecycle/wakeup.h"

#include "extension/base/arguments.h"
#include "extension/base/guard.h"
#include "extension/lifecycle/commit_counts.h"

extern "C" {
#include <access/xlog.h>
#include <commands/trigger.h>
}

namespace postbox {
namespace {

constexpr long kStandbySleepMs = 50;
constexpr long kUnloadedSleepMs = 20;

// Of the current transaction: what to do at commit.
struct Requests {
  WakeSet outboxes;
  WakeSet applied;
  bool config = false;
  bool extension = false;
  bool databases = false;
} requests;

// Under the lock.
void NoteExtensionChange(SharedState* state, Oid database) {
  if (state->extension_change_count < kMaxExtensionChanges) {
    state->extension_changes[state->extension_change_count++] = database;
  } else {
    state->extension_changes_overflow = true;
  }
}

// Runs after the commit is visible and with interrupts held: it must not raise an error.
void Commit(const Requests& wanted) {
  SharedState* state = shared_state();
  if (wanted.config || wanted.extension) RaiseConfigGeneration();
  if (wanted.extension || wanted.databases) {
    LWLockAcquire(SharedStateLock(), LW_EXCLUSIVE);
    if (wanted.extension) {
      pg_atomic_fetch_add_u64(&state->extension_epoch, 1);
      NoteExtensionChange(state, MyDatabaseId);
    }
    if (wanted.databases) state->databases_changed = true;
    LWLockRelease(SharedStateLock());
    WakeLauncher();
  }
  if (wanted.config || wanted.extension) {
    AnnounceWork(MyDatabaseId, WakeSet::All());
  } else if (!wanted.outboxes.empty()) {
    AnnounceWork(MyDatabaseId, wanted.outboxes);
  }
  wanted.applied.ForEachPlace(
      [&](size_t place) { ConditionVariableBroadcast(&state->applied[place]); });
}

void WakeAtTransactionEnd(XactEvent event, void* /*argument*/) {
  switch (event) {
    case XACT_EVENT_COMMIT: {
      const Requests wanted = requests;
      requests = {};
      Commit(wanted);
      break;
    }
    case XACT_EVENT_ABORT:
    case XACT_EVENT_PREPARE:
      requests = {};
      break;
    default:
      break;
  }
}

// Where the flags are set; nullptr if the library is not preloaded.
Requests* AtCommit() {
  if (shared_state() == nullptr) return nullptr;
  static bool registered = false;
  if (!registered) RegisterXactCallback(WakeAtTransactionEnd, nullptr);
  registered = true;
  return &requests;
}

ConditionVariable* Variable(const Awaited& what) {
  SharedState* state = shared_state();
  return what.row ? &state->applied[WakeSet::PlaceOf(*what.row)] : &state->published;
}

// Raises an error when the query is cancelled.
void Sleep(const Awaited& what, long timeout_ms) {
  static uint32 wait_events[2] = {0, 0};
  uint32& wait_event = wait_events[what.row ? 0 : 1];
  if (wait_event == 0) {
    wait_event = WaitEvent(what.row ? "PostboxWaitForVersion" : "PostboxWaitPublished");
  }
  if (shared_state() != nullptr) {
    ConditionVariableTimedSleep(Variable(what), timeout_ms, wait_event);
    return;
  }
  SleepOnLatch(std::min(timeout_ms, kUnloadedSleepMs), wait_event);
}

}  // namespace

ConfigRelations FindConfigRelations() {
  const Oid schema = get_namespace_oid("postbox", true);
  if (!OidIsValid(schema)) return {};
  return {.outbox = get_relname_relid("outbox", schema),
          .publication = get_relname_relid("publication", schema),
          .credential = get_relname_relid("credential", schema),
          .credential_secret = get_relname_relid("credential_secret", schema)};
}

void ChangeDatabase(Oid database) {
  LWLockAcquire(SharedStateLock(), LW_EXCLUSIVE);
  NoteExtensionChange(shared_state(), database);
  LWLockRelease(SharedStateLock());
  WakeLauncher();
}

void RequestPublishersAtCommit(Oid outbox) {
  if (Requests* wanted = AtCommit()) wanted->outboxes.Add(outbox);
}

void RequestPublishersAtCommit() {
  if (Requests* wanted = AtCommit()) wanted->outboxes.AddAll();
}

void ConfigChangedAtCommit() {
  if (Requests* wanted = AtCommit()) wanted->config = true;
}

void ExtensionChangedAtCommit() {
  if (Requests* wanted = AtCommit()) wanted->extension = true;
}

void DatabasesChangedAtCommit() {
  if (Requests* wanted = AtCommit()) wanted->databases = true;
}

void NotifyAppliedAtCommit(uint32 row) {
  if (Requests* wanted = AtCommit()) wanted->applied.Add(row);
}

void NotifyAppliedAtCommit() {
  if (Requests* wanted = AtCommit()) wanted->applied.AddAll();
}

bool WaitUntil(const Awaited& what, TimestampTz deadline, long longest_ms,
               const std::function<bool()>& is_there) {
  if (is_there()) return true;
  const bool preloaded = shared_state() != nullptr;
  if (preloaded) ConditionVariablePrepareToSleep(Variable(what));
  bool there = false;
  while (!(there = is_there())) {
    const TimestampTz now = GetCurrentTimestamp();
    if (now >= deadline) break;
    const long left = TimestampDifferenceMilliseconds(now, deadline) + 1;
    const long most = RecoveryInProgress() ? kStandbySleepMs : longest_ms;
    Pg([&] { Sleep(what, std::min(left, most)); });
  }
  // After an error the abort of the transaction does the same.
  if (preloaded) ConditionVariableCancelSleep();
  return there;
}

void SleepOnLatch(long timeout_ms, uint32 wait_event) {
  (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, timeout_ms, wait_event);
  ResetLatch(MyLatch);
  CHECK_FOR_INTERRUPTS();
}

TimestampTz DeadlineAfter(Datum timeout) {
  const int64 wait = Microseconds(timeout);
  if (wait < 0) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE, "timeout may not be negative", "",
          "With 0 the function checks once and does not wait.");
  }
  // Far beyond any wait, and far from the end of timestamps.
  constexpr int64 kLongest = 1000 * 365 * USECS_PER_DAY;
  return GetCurrentTimestamp() + std::min(wait, kLongest);
}

}  // namespace postbox

// The trigger of the tables that hold configuration. Other sessions learn of the change by an
// invalidation message about the table, workers by the config generation. Workers keep publications
// and their outboxes only.
POSTBOX_FUNCTION(configuration_changed) {
  return postbox::Guarded([&] {
    if (!CALLED_AS_TRIGGER(fcinfo)) {
      postbox::Throw(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED,
                     "configuration_changed() is a trigger function");
    }
    const auto* trigger = reinterpret_cast<const TriggerData*>(fcinfo->context);
    postbox::Pg([&] { CacheInvalidateRelcache(trigger->tg_relation); });
    if (postbox::Pg(
            [&] { return postbox::FindConfigRelations().Has(trigger->tg_relation->rd_id); })) {
      postbox::ConfigChangedAtCommit();
    }
    postbox::ForgetDeletedAtCommit(*trigger);
    return Datum{0};
  });
}

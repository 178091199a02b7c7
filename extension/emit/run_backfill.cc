// postbox.run_backfill: emits a backfill chunk after chunk (backfill_chunk.cc), each in a separate
// transaction, until it is done or cancelled.
//
// A backfill is run by one session at a time. Rule: the session holds a lock for the session on the
// outbox and the table; PostgreSQL releases it when the session ends, however it ends. So a
// backfill that nothing runs is never taken for one that runs: pg_locks shows it.
//
//  1. It is paused, or the publications of the outbox lag: nothing is emitted, and the next look is
//     a little later. The session has no snapshot meanwhile, and takes no transaction id.
//  2. A row is locked by another transaction: the chunk is rolled back, and tried again with half
//     of its rows.
//  3. It is cancelled, or another session cancels this statement, or the server crashes: what was
//     committed stays, and the next call goes on behind it.
//  4. A chunk fails: its error is stored, and raised.
#include "extension/base/arguments.h"
#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "extension/base/subtransaction.h"
#include "extension/emit/backfill.h"
#include "extension/lifecycle/wakeup.h"
#include "extension/rules/chunk_size.h"
#include "extension/trust/act_as.h"

extern "C" {
#include <nodes/parsenodes.h>
#include <storage/lock.h>
#include <tcop/pquery.h>
#include <tcop/utility.h>
}

namespace postbox {
namespace {

constexpr long kPauseMs = 200;

// The lock of the session that runs a backfill.
class RunLock {
 public:
  explicit RunLock(const Backfill& backfill) {
    SET_LOCKTAG_OBJECT(tag_, MyDatabaseId, backfill.outbox, backfill.relation, 0);
    const LockAcquireResult result =
        Pg([&] { return LockAcquire(&tag_, ExclusiveLock, true, true); });
    if (result == LOCKACQUIRE_OK) return;
    if (result == LOCKACQUIRE_ALREADY_HELD) Release();
    Throw(ERRCODE_OBJECT_IN_USE,
          "a backfill of table " + RelationName(backfill.relation) + " is running already",
          "One session at a time runs the backfill of a table into an outbox.",
          "postbox.backfill_status shows the process. Pause or cancel the backfill there.");
  }
  ~RunLock() { Release(); }
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  void Release() { LockRelease(&tag_, ExclusiveLock, true); }

  LOCKTAG tag_{};
};

struct RunLimits {
  Datum max_chunk_time;
  NullableDatum max_lag;
};

struct ChunkReport {
  std::string outcome;
  int rows = 0;
};

// In the transaction that begins, whatever the default of the session: the snapshot of another
// level would hide what the transactions that a chunk waits for commit.
void BeginReadCommitted() {
  Pg([] {
    set_config_option("transaction_isolation", "read committed", PGC_USERSET, PGC_S_SESSION,
                      GUC_ACTION_LOCAL, true, 0, false);
    EnsurePortalSnapshotExists();
  });
}

ChunkReport EmitNext(const std::string& name, int rows, const RunLimits& limits) {
  const SpiConnection connection;
  const FixedSearchPath search_path;
  Parameters parameters;
  parameters.AddText(name).AddInt(rows).Add(INTERVALOID, limits.max_chunk_time);
  if (limits.max_lag.isnull) {
    parameters.AddNull(INTERVALOID);
  } else {
    parameters.Add(INTERVALOID, limits.max_lag.value);
  }
  Run("SELECT c.outcome, c.row_count FROM postbox.emit_backfill_chunk($1, $2, $3, $4) AS c",
      parameters);
  return {TextColumn(0, 1), Int32Column(0, 2)};
}

void Note(const std::string& name, const std::string& assignments, const std::string& text = "") {
  const SpiConnection connection;
  const FixedSearchPath search_path;
  UpdateBackfill(name, assignments, text);
}

Backfill FindBackfill(const std::string& name) {
  const SpiConnection connection;
  const FixedSearchPath search_path;
  return ReadBackfill(name);
}

// Whether another transaction was in the way.
bool IsConflict(int sqlstate) {
  return sqlstate == ERRCODE_LOCK_NOT_AVAILABLE || sqlstate == ERRCODE_T_R_DEADLOCK_DETECTED ||
         sqlstate == ERRCODE_T_R_SERIALIZATION_FAILURE;
}

void Notice(const std::string& text) {
  Pg([&] { ereport(NOTICE, errmsg_internal("%s", text.c_str())); });
}

class BackfillRun {
 public:
  BackfillRun(std::string name, const RunLimits& limits)
      : name_(std::move(name)),
        limits_(limits),
        size_(std::chrono::microseconds(Microseconds(limits.max_chunk_time))) {}

  void Run() {
    Commit();
    Note(name_,
         "started_at = coalesce(b.started_at, clock_timestamp()), updated_at = NULL, "
         "waits_for = NULL");
    Commit();
    while (Step()) {
    }
  }

 private:
  static void Commit() {
    Pg([] { SPI_commit(); });
    BeginReadCommitted();
  }

  // One transaction, and the pause behind it. False at the end.
  bool Step() {
    const auto begin = std::chrono::steady_clock::now();
    std::optional<PostgresError> error;
    ChunkReport report;
    try {
      InSubtransaction([&] { report = EmitNext(name_, size_.rows(), limits_); });
    } catch (const PostgresError& raised) {
      if (raised.sqlstate == ERRCODE_QUERY_CANCELED || raised.sqlstate == ERRCODE_ADMIN_SHUTDOWN) {
        throw;
      }
      error = raised;
    }
    if (error.has_value()) return GiveWay(*error);
    Pg([] { SPI_commit(); });
    if (report.outcome == "emitted") {
      size_.Done(report.rows, std::chrono::duration_cast<ChunkSize::Duration>(
                                  std::chrono::steady_clock::now() - begin));
      rows_ += report.rows;
    } else if (report.outcome == "done" || report.outcome == "cancelled") {
      Notice("backfill \"" + name_ + "\" is " + report.outcome + ": " + std::to_string(rows_) +
             " rows emitted");
      return false;
    } else {
      Pause(report.outcome);
    }
    BeginReadCommitted();
    return true;
  }

  // Other errors than conflicts end the run.
  bool GiveWay(const PostgresError& error) {
    const bool is_conflict = IsConflict(error.sqlstate);
    if (is_conflict) {
      Note(name_, "waits_for = $2", "another transaction holds a lock: " + error.message);
    } else {
      Note(name_, "waits_for = NULL, last_error = $2, last_error_at = clock_timestamp()",
           error.SqlState() + ": " + error.message);
    }
    Pg([] { SPI_commit(); });
    if (!is_conflict) throw error;
    size_.GaveWay();
    if (size_.rows() == 1) Pg([] { SleepOnLatch(kPauseMs); });
    BeginReadCommitted();
    return true;
  }

  void Pause(const std::string& outcome) {
    if (outcome != said_) {
      Notice("backfill \"" + name_ + "\" " +
             (outcome == "paused" ? "is paused: it goes on after postbox.resume_backfill"
                                  : "waits for publications: see postbox.backfill_status"));
    }
    said_ = outcome;
    Pg([] { SleepOnLatch(kPauseMs); });
  }

  std::string name_;
  RunLimits limits_;
  ChunkSize size_;
  int64 rows_ = 0;
  std::string said_;
};

}  // namespace
}  // namespace postbox

// (backfill text, max_chunk_time interval, max_lag interval)
POSTBOX_FUNCTION(run_backfill) {
  using namespace postbox;
  return Guarded([&]() -> Datum {
    Pg([] { PreventCommandIfReadOnly("run_backfill()"); });
    const std::string name = TextArgument(fcinfo, 0, "backfill");
    const RunLimits limits{Argument(fcinfo, 1, "max_chunk_time"), fcinfo->args[2]};
    PositiveTime(limits.max_chunk_time, "max_chunk_time");
    if (!limits.max_lag.isnull) PositiveTime(limits.max_lag.value, "max_lag");
    if (fcinfo->context == nullptr || !IsA(fcinfo->context, CallContext) ||
        castNode(CallContext, fcinfo->context)->atomic) {
      Throw(ERRCODE_INVALID_TRANSACTION_TERMINATION,
            "run_backfill cannot run inside a transaction block", "It commits after each chunk.",
            "Use CALL outside of a transaction block, and not in a function.");
    }
    const Backfill backfill = FindBackfill(name);
    const RunLock lock(backfill);
    Pg([] { SPI_connect_ext(SPI_OPT_NONATOMIC); });
    BackfillRun(name, limits).Run();
    Pg([] { SPI_finish(); });
    return Datum{0};
  });
}

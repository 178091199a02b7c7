#include "worker/publisher/lane_failures.h"

#include "worker/publisher/base/limited_log.h"
#include "worker/publisher/base/passing_error.h"
#include "worker/publisher/base/registration.h"
#include "worker/publisher/base/server_text.h"
#include "worker/publisher/base/transaction.h"
#include "worker/publisher/scale.h"
#include "worker/publisher/store/publication_state.h"

namespace postbox::publisher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kLockRetry(100);
// A lock that is held for longer is shown.
constexpr milliseconds kLockPatience = seconds(1);
constexpr pubsub::BackoffPolicy kSuspectBackoff{seconds(30), 2.0, seconds(3600)};

// The processes that hold locks on a relation in modes that keep others from reading or writing it,
// with commas between them; empty if there are none.
std::string LockHolders(Oid relation) {
  Parameters parameters;
  parameters.AddOid(OIDOID, relation).AddOid(OIDOID, MyDatabaseId);
  // A database that was copied with CREATE DATABASE has relations of the same OIDs.
  const uint64 rows =
      Run("SELECT DISTINCT l.pid FROM pg_catalog.pg_locks l "
          "WHERE l.locktype OPERATOR(pg_catalog.=) 'relation'::pg_catalog.text "
          "AND l.database OPERATOR(pg_catalog.=) $2 "
          "AND l.relation OPERATOR(pg_catalog.=) $1 AND l.granted AND l.pid IS NOT NULL "
          "AND (l.mode OPERATOR(pg_catalog.=) 'AccessExclusiveLock'::pg_catalog.text "
          "OR l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock'::pg_catalog.text "
          "OR l.mode OPERATOR(pg_catalog.=) 'ShareRowExclusiveLock'::pg_catalog.text "
          "OR l.mode OPERATOR(pg_catalog.=) 'ShareLock'::pg_catalog.text)",
          parameters);
  std::string holders;
  for (uint64 row = 0; row < rows; ++row) {
    holders += (row == 0 ? "" : ", ") + std::to_string(Int32Column(row, 1));
  }
  return holders;
}

}  // namespace

std::string Reason(const PostgresError& error) {
  return Shortened(error.hint.empty() ? error.message : error.message + " (" + error.hint + ")",
                   kMaxReason);
}

void LaneFailures::FailStatement(Moment now, const PostgresError& error, TurnLimit* limit) {
  // What is cut short because the worker leaves says nothing about the outbox.
  if (StopRequested()) {
    LogCutOff(Reason(error));
    return;
  }
  if (IsPassing(error)) {
    Pass(now, Reason(error));
    return;
  }
  if (error.sqlstate == ERRCODE_QUERY_CANCELED) limit->Cancelled();
  Suspend(now, Reason(error));
}

void LaneFailures::FailTurn(Moment now, const PostgresError& error, TurnLimit* limit) {
  statement_failed_ = true;
  FailStatement(now, error, limit);
}

void LaneFailures::Recover() {
  statement_failed_ = false;
  EndPassing();
}

void LaneFailures::Pass(Moment now, const std::string& reason) {
  if (passing_since_ == 0) passing_since_ = now;
  topic_.Postpone(After(now, kLockRetry));
  if (Between(passing_since_, now) < Scale()(kLockPatience)) return;
  std::string holders;
  try {
    InTransaction("postbox: looking for the locks on an outbox",
                  [&] { holders = LockHolders(publication_->outbox); });
  } catch (const PostgresError&) {
    // The reason without the name of the process is still one.
  }
  Suspend(now, holders.empty() ? reason : "the outbox is locked by process " + holders,
          kLockBackoff);
}

void LaneFailures::SuspendSuspect(Moment now) {
  statement_failed_ = true;
  Suspend(now,
          "a statement on the outbox exceeded its time or memory limit, could not be canceled, and "
          "terminated a worker",
          kSuspectBackoff);
}

void LaneFailures::Suspend(Moment now, const std::string& error,
                           const pubsub::BackoffPolicy& backoff) {
  if (StopRequested()) return;
  Log(error);
  const pubsub::BackoffPolicy scaled = Scale()(backoff);
  topic_.Fail(After(now, scaled.base));
  try {
    InTransaction("postbox: suspending a publication", [&] {
      const Moment until = publisher::Suspend(*publication_, error, scaled, tenant_->WaitsUntil());
      topic_.Postpone(std::max(topic_.retry_at(), until));
    });
  } catch (const PostgresError& second) {
    const std::string message = "could not store that publication \"" + publication_->name +
                                "\" is suspended: " + second.message;
    LogLimited(SubjectOf(message), {.message = message});
  }
}

void LaneFailures::LogCutOff(const std::string& error) const {
  const std::string message =
      "publication \"" + publication_->name + "\": the worker exits and aborted its work: " + error;
  LogLimited(SubjectOf(message), {.message = message});
}

void LaneFailures::Log(const std::string& error) const {
  LeaveIfExtensionGone();
  const std::string message = "publication \"" + publication_->name + "\" is suspended: " + error;
  LogLimited(SubjectOf(message), {.level = WARNING, .message = message});
}

}  // namespace postbox::publisher

#include "worker/publisher/base/transaction.h"

#include "worker/publisher/base/registration.h"
#include "worker/publisher/base/step_limit.h"

namespace postbox::publisher {

void Transaction::Begin() {
  if (begun_) return;
  begun_ = true;
  has_counts_ = true;
  limited_ = time_.count() > 0;
  if (limited_) StepLimit::Begin(outbox_, time_);
  Pg([&] {
    SetCurrentStatementStartTimestamp();
    pgstat_report_activity(STATE_RUNNING, activity_);
    StartTransactionCommand();
    ShareExtension();
    SPI_connect();
    PushActiveSnapshot(GetTransactionSnapshot());
    if (durability_ == Durability::kSoon) {
      set_config_option("synchronous_commit", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL,
                        true, 0, false);
    }
  });
}

// What the transaction's end leaves: advisory locks of the session. An owner's code takes them.
void Transaction::ReleaseAdvisoryLocks() { LockReleaseSession(USER_LOCKMETHOD); }

void Transaction::Commit() {
  if (!begun_) return;
  // No code of an owner runs from here on: what it has deferred was refused. And COMMIT may have
  // to wait, for a standby for example.
  EndLimit();
  Pg([] {
    PopActiveSnapshot();
    SPI_finish();
    CommitTransactionCommand();
    ReleaseAdvisoryLocks();
  });
  begun_ = false;
  committed_ = true;
  Pg([] {
    pgstat_report_stat(false);
    pgstat_report_activity(STATE_IDLE, nullptr);
  });
}

void Transaction::Abort() {
  if (!begun_) return;
  begun_ = false;
  EndLimit();
  Pg([] {
    AbortCurrentTransaction();
    ReleaseAdvisoryLocks();
  });
  Pg([] { pgstat_report_activity(STATE_IDLE, nullptr); });
}

void Transaction::ReportCounts() {
  Pg([] { pgstat_report_stat(true); });
  has_counts_ = false;
}

void Transaction::EndLimit() {
  if (time_.count() > 0) StepLimit::End();
}

void Transaction::ThrowIfOverLimit() const {
  if (!limited_) return;
  const std::string cause = StepLimit::Cause();
  if (cause.empty()) return;
  Throw(ERRCODE_QUERY_CANCELED, cause, "",
        "Look for triggers, policies, defaults and types of its owner that wait or run long "
        "computations.");
}

}  // namespace postbox::publisher

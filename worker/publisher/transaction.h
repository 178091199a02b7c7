// A transaction around a lambda.
//
// InTransaction() begins, calls, commits. Whatever is thrown in between, a PostgresError or a C++
// exception, aborts the transaction and goes on to the caller, who may go on working: after the
// abort nothing of the failed transaction is left. No transaction is open while the worker waits.
#ifndef POSTBOX_WORKER_PUBLISHER_TRANSACTION_H_
#define POSTBOX_WORKER_PUBLISHER_TRANSACTION_H_

#include "extension/base/guard.h"
#include "worker/publisher/registration.h"

namespace postbox::publisher {

// Runs `f` in a transaction with SPI connected. `activity` shows in pg_stat_activity.
template <class F>
void InTransaction(const char* activity, F&& f) {
  Pg([&] {
    SetCurrentStatementStartTimestamp();
    pgstat_report_activity(STATE_RUNNING, activity);
    StartTransactionCommand();
  });
  try {
    Pg([] {
      ShareExtension();
      SPI_connect();
      PushActiveSnapshot(GetTransactionSnapshot());
    });
    f();
    Pg([] {
      PopActiveSnapshot();
      SPI_finish();
      CommitTransactionCommand();
    });
  } catch (...) {
    Pg([] { AbortCurrentTransaction(); });
    Pg([] { pgstat_report_activity(STATE_IDLE, nullptr); });
    throw;
  }
  Pg([] {
    pgstat_report_stat(false);
    pgstat_report_activity(STATE_IDLE, nullptr);
  });
}

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_TRANSACTION_H_

#include "worker/publisher/base/transaction.h"

#include "worker/publisher/base/registration.h"

namespace postbox::publisher {

void Transaction::Begin() {
  if (begun_) return;
  begun_ = true;
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

void Transaction::Commit() {
  if (!begun_) return;
  Pg([] {
    PopActiveSnapshot();
    SPI_finish();
    CommitTransactionCommand();
  });
  begun_ = false;
  Pg([] {
    pgstat_report_stat(false);
    pgstat_report_activity(STATE_IDLE, nullptr);
  });
}

void Transaction::Abort() {
  if (!begun_) return;
  begun_ = false;
  Pg([] { AbortCurrentTransaction(); });
  Pg([] { pgstat_report_activity(STATE_IDLE, nullptr); });
}

}  // namespace postbox::publisher

// Rows in a log that another cluster wrote: they come with a restore. Which of them were published
// there is settled first, in steps (extension/registry/foreign_events.cc), since rows of this
// cluster may follow them.
//
// Settling reads the whole log, however large it is, and an owner's triggers run meanwhile. So a
// step has its own limit, and one that was cancelled would begin at the start again: each try
// has twice the time.
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_FOREIGN_ROWS_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_FOREIGN_ROWS_H_

#include "extension/base/statement.h"
#include "worker/publisher/store/publication.h"

namespace postbox::publisher {

class ForeignRows {
 public:
  // What the lanes of a publication share in this worker.
  struct Shared {
    static constexpr std::chrono::milliseconds kFirstTime = std::chrono::seconds(30);
    // What the next step of settling may take.
    std::chrono::milliseconds step_time = kFirstTime;
    // When to look for such rows again.
    std::chrono::steady_clock::time_point look_at;
    // How often such rows had been settled, by any worker.
    std::int64_t settled = 0;
  };

  // Both must outlive the object.
  ForeignRows(const Publication& publication, Shared& shared)
      : publication_(publication), shared_(shared) {}

  // `look`: LogOutboxSql::foreign.
  void Prepare(const std::string& look) { look_ = Statement(look, {TEXTOID}); }

  // With the rights of the worker, each.
  // Whether lanes of the outbox have positions in another cluster's transactions. Then Settle().
  bool LanesAreForeign();
  // Whether there are rows to be settled. It looks at most once a second, as the owner.
  bool Any(Oid owner_role);
  // A step. Returns how many rows it has settled; 0 also while another session does it.
  int64 Settle();

  // Whether some were settled since the last call, by this worker or another one: then the table of
  // parked events has more of them, which go before what is in the log.
  bool SettledSince();

 private:
  const Publication& publication_;
  Shared& shared_;
  Statement look_;
  std::int64_t settled_ = 0;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_FOREIGN_ROWS_H_

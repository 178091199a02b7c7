// The moment at which a log is read, and what makes it durable.
//
// The position of a lane depends on the order of three reads (log_position_logic.h): the last
// value of the sequence, then the snapshot, then the next transaction id.
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_LOG_MOMENT_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_LOG_MOMENT_H_

#include "extension/base/guard.h"
#include "worker/publisher/store/log_position_logic.h"

namespace postbox::publisher {

// While it lives, statements that are run read-only see what this snapshot sees. An abort pops it
// by itself.
class SnapshotGuard {
 public:
  SnapshotGuard();
  ~SnapshotGuard();
  SnapshotGuard(const SnapshotGuard&) = delete;
  SnapshotGuard& operator=(const SnapshotGuard&) = delete;
};

// The last value that a sequence has given out; 0: none.
int64 LastValue(Oid sequence);

// The moment of the active snapshot. `last_seq` was read before that was taken.
LogMoment TakeMoment(int64 last_seq);

// Makes durable whatever a snapshot of now can see. A crash cannot take back an event that was
// handed out after this, synchronous_commit = off included. Returns up to where WAL is flushed.
XLogRecPtr FlushVisibleWal();

// Values to pass: xid8, xid8[].
Datum XidValue(FullXid xid);
Datum XidArrayValue(const std::vector<FullXid>& xids);

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_LOG_MOMENT_H_

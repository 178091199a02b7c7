// What is in memory of a lane of a log that this worker has: what it has read and what became of
// that (lane_progress_logic.h), a backlog and what comes after it (backlog_logic.h), and what its
// row says (stored_position_logic.h). It is made when the lane is taken, and goes when the lane is
// given up or begins at its stored position again.
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_LOG_LANE_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_LOG_LANE_H_

#include "worker/publisher/policy/parked_share.h"
#include "worker/publisher/source/log/backlog_logic.h"
#include "worker/publisher/source/log/log_reader.h"
#include "worker/publisher/source/log/log_tables.h"
#include "worker/publisher/source/log/maybe_sent.h"
#include "worker/publisher/source/log/stored_position_logic.h"

namespace postbox::publisher {

class LogLane {
 public:
  using Handle = LaneProgress::Handle;

  // As it is taken. `next`: no handle from this one on was ever given. `reader` must outlive it.
  LogLane(LanePosition position, Handle next, LogReader& reader, bool ordered);
  LogLane(const LogLane&) = delete;
  LogLane& operator=(const LogLane&) = delete;

  LaneProgress& progress() { return parts_->progress; }
  const LaneProgress& progress() const { return parts_->progress; }
  Backlog& backlog() { return parts_->backlog; }
  StoredPosition& stored() { return parts_->stored; }
  const StoredPosition& stored() const { return parts_->stored; }

  // A call begins. If it fails, GiveBack() fails what it has handed out.
  void BeginStep();
  void HandOut(Handle handle) { handed_out_.push_back(handle); }
  std::size_t handed_out() const { return handed_out_.size(); }
  void GiveBack();

  // Reads what is new under one snapshot. Nothing: the log was emptied, which was taken note of.
  std::optional<Backlog::Read> ReadNew(const LogTables& tables, const Backlog::Room& room,
                                       MaybeSent* maybe_sent);
  // All transactions that have a seq up to this value of the sequence had ended when it was read
  // for the last time, and all events up to it are published. Nothing: that is not so.
  std::optional<std::int64_t> PublishedUpTo() const;

  // Up to which seq parked events may be claimed. What an earlier worker had read after the stored
  // position it may have parked, while an earlier event of the same key was on its way. That one is
  // read again. So until the lane has come to the end of the log, a parked event is claimed when
  // the log has been read up to it.
  std::int64_t ParkedUpTo() const;
  ParkedShare& parked_share() { return parked_share_; }

  // When the position is to be stored, if it is within an hour. `more`: there is something else to
  // be stored with it.
  std::chrono::milliseconds StoreIn(bool more) const;
  bool IsOutdated() const { return stored().IsOutdated(progress().settled()); }
  // So many events it has handed out since its stored position that may have been sent. What has
  // failed was not sent, or is counted.
  std::int64_t SentSinceStored() const;

 private:
  struct Parts {
    Parts(LanePosition position, Handle next, Moment stored_at, ChunkReader& reader, bool ordered);

    LaneProgress progress;
    Backlog backlog;
    StoredPosition stored;
  };
  // The last value of the sequence as it was read, and a transaction id that was above those of all
  // rows up to it when it was read so for the first time.
  struct Drawn {
    std::int64_t hwm = 0;
    FullXid below = 0;
  };

  // Forgets the position, so that all that is in the log is read.
  void BeginAgain();

  LogReader& reader_;
  const bool ordered_;
  std::unique_ptr<Parts> parts_;
  Drawn drawn_;
  std::vector<Handle> handed_out_;  // in this step
  bool at_end_ = false;             // it has come to the end of the log
  ParkedShare parked_share_;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_LOG_LANE_H_

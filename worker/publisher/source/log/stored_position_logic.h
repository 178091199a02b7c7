// What a lane's row has of its position, and when that is to be written again.
//
// A lane that has read events writes its position every postbox.checkpoint_interval. One without
// events writes nothing: the stored position says the same with older transaction ids. Two
// exceptions, since others read the row:
//
//  - Which events are committed and not published is judged by the stored snapshot. If it was taken
//    while transactions were running that are older than the last event, it is stored once more
//    when they have ended.
//  - The retention keeps what some lane has not passed. So a lane that passes the events of others
//    stores that every postbox.maintenance_interval, and once more when what ran meanwhile has
//    ended.
//
// No Postgres, and no clock.
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_STORED_POSITION_LOGIC_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_STORED_POSITION_LOGIC_H_

#include <chrono>
#include <optional>

#include "worker/publisher/policy/moment.h"
#include "worker/publisher/source/log/lane_progress_logic.h"

namespace postbox::publisher {

class StoredPosition {
 public:
  struct Intervals {
    std::chrono::milliseconds checkpoint, maintenance;
  };

  // As it was when the lane was taken. `next`: the handle of the first event that is read then.
  // What was running when it was stored may be of events that the lane has passed.
  StoredPosition(LanePosition position, LaneProgress::Handle next, Moment now)
      : position_(std::move(position)),
        next_(next),
        written_at_(now),
        passed_below_(position_.main.top().xmax) {}

  const LogPosition& main() const { return position_.main; }
  // The handle of the first event that is not behind it.
  LaneProgress::Handle next() const { return next_; }
  Moment written_at() const { return written_at_; }

  // The row has another position than the one here, which nothing of the log is behind.
  void MarkUnwritten() { read_since_ = true; }
  // Events of the lane were read whose transactions are all below this one.
  void NoteRead(FullXid next_xid);
  // Events of other lanes were passed, and none of this one.
  void NotePassed(FullXid next_xid) { passed_below_ = next_xid; }

  // Whether it says less than it should of what is settled.
  bool IsOutdated(const LanePosition& settled) const;
  // When it is to be written, if it is. `more`: there is something else to be stored with it.
  std::optional<std::chrono::milliseconds> DueIn(const LanePosition& settled, bool more, Moment now,
                                                 const Intervals& intervals) const;

  void BeginStep() { before_.reset(); }
  void Write(const LaneProgress& progress, Moment now);
  // The step has failed. Whether it had written the position.
  bool RollBack();

 private:
  bool HasPassedOthers(const LanePosition& settled) const;

  struct Before {
    LanePosition position;
    LaneProgress::Handle next;
  };

  LanePosition position_;
  LaneProgress::Handle next_;
  Moment written_at_;
  std::optional<Before> before_;  // what this step has written over
  bool read_since_ = false;       // events, since it was written
  FullXid read_below_ = 0;
  FullXid passed_below_;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_STORED_POSITION_LOGIC_H_

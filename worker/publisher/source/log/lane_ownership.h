// Whether this worker has a lane of a log: its share of the publication's lanes, the row in which
// its token stands, and the doubts about that.
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_LANE_OWNERSHIP_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_LANE_OWNERSHIP_H_

#include <memory>

#include "worker/publisher/delivery/event_log.h"
#include "worker/publisher/delivery/expired_events.h"
#include "worker/publisher/source/log/foreign_rows.h"
#include "worker/publisher/store/lane_row.h"

namespace postbox::publisher {

// What the sources of a publication's lanes share in this worker: how many of the lanes it has (it
// takes its share and leaves the others to its siblings), their lines in the server's log, and what
// they know of rows of other clusters.
struct LaneShare {
  int held = 0;
  EventLog log;
  ExpiredEvents expired{};  // of a step
  ForeignRows::Shared foreign{};
};

class LaneOwnership {
 public:
  // The publication must outlive the object.
  LaneOwnership(const Publication& publication, int slice, std::shared_ptr<LaneShare> share,
                std::string lock_token);
  ~LaneOwnership() { Drop(); }
  LaneOwnership(const LaneOwnership&) = delete;
  LaneOwnership& operator=(const LaneOwnership&) = delete;

  int slice() const { return slice_; }
  LaneShare& share() const { return *share_; }
  // Whether the worker has more lanes of the publication than it should: there are more workers
  // now.
  bool IsAboveShare() const { return share_->held > Share(); }
  // Whether it may have one more.
  bool MayTake();
  std::optional<LaneRow::Taken> TryTake();

  // What is in memory of the lane is gone; its row may say that this worker has it.
  void Drop();
  // Gives up the row, too. As LaneRow::Release().
  void Release(bool in_order, std::int64_t sent_again);

  // The worker was not heard of for so long that another one may have taken the lane over. Store()
  // finds out.
  void MarkUncertain() { uncertain_ = true; }
  bool uncertain() const { return uncertain_; }
  // As LaneRow::Checkpoint(). False: the lane is not ours any more, which is logged.
  bool Store(const LanePosition& position, std::int64_t sent_again);

  // For the log: publication "P": lane N.
  std::string Name() const;

 private:
  // How many of the publication's lanes each worker should have.
  int Share() const;
  // Whether the row says that this worker has the lane, though nothing of it is in memory: it was
  // rolled back, or the publication was altered. No other takes it, so it is taken, even above the
  // share, and given up in order.
  bool IsLeftBehind();

  const Publication& publication_;
  const int slice_;
  const std::shared_ptr<LaneShare> share_;
  LaneRow row_;
  bool has_ = false;
  bool uncertain_ = false;
  bool maybe_left_ = true;  // see IsLeftBehind()
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_LANE_OWNERSHIP_H_

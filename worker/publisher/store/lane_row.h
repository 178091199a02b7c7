// The row of a lane in postbox.lane. It stands for one lane of a publication of a log, and tells:
//
//  - How many of its events were sent again (sent_again.h).
//  - Which worker has the lane, and how far it is. A lane has one owner at a time:
//    the worker whose lock_token stands in its row and that is alive. It keeps the lane until it
//    ends or has more than its share. Another worker takes the lane over when the token's worker is
//    gone, or was not heard of for postbox.lease_timeout (extension/shared/shared_state.h). Every
//    checkpoint is written under the condition that the token is still the writer's, so a worker
//    that has lost its lane stores nothing. A lane that may not be taken is only looked at, and an
//    owner without events writes nothing.
//
// The races around the owner of a lane:
//
//   A holds the lane, B looks for one.
//   1. B reads the row FOR UPDATE SKIP LOCKED: a lane that another worker is just looking at, or
//      checkpointing, is passed over.
//   2. B reads the token from the row first, and asks for the tokens of living workers afterwards.
//      A worker that began in between and took this lane would have changed the row, which B has
//      locked. So a token that is not alive then is the token of a worker that is gone.
//   3. B writes its own token and commits. If A still lives, and was only not heard of, it notices
//      that when it comes round: it first says that it lives, then writes its row before it claims
//      anything. So either B sees that A lives, or A finds B's token, or waits for B's row lock and
//      then finds it. Then A writes nothing, and drops all it knows of the lane. What A
//      had handed to Pub/Sub by then is sent again by B, from the stored position on: at least
//      once, with the same event ids.
//   4. If A dies between publishing and its checkpoint, B begins at the stored position, too.
// tests/models/lane_lease.pml checks these.
//
// All functions run in a transaction of the caller's, with the rights of the worker itself.
#ifndef POSTBOX_WORKER_PUBLISHER_STORE_LANE_ROW_H_
#define POSTBOX_WORKER_PUBLISHER_STORE_LANE_ROW_H_

#include "extension/base/statement.h"
#include "worker/publisher/store/log_position_logic.h"
#include "worker/publisher/store/publication.h"

namespace postbox::publisher {

// The row of one lane of a log outbox.
class LaneRow {
 public:
  // In lock_token: it is free, and was not given up in order.
  static constexpr char kGone[] = "gone";

  LaneRow(const Publication& publication, int slice, std::string lock_token);

  struct Taken {
    LanePosition position;
    // In order. If not, another worker may have sent events that are not stored as read.
    bool given_up;
  };
  // Takes the lane if it is free. Nothing if another worker has it, or is just looking at it.
  std::optional<Taken> TryAcquire();

  // Whether it is this worker's, as the row says.
  bool IsOurs();

  // Gives the lane up for others to take. `in_order`: no worker may have sent events that are still
  // to be read. `sent_again`: so many events more were sent again.
  void Release(bool in_order, std::int64_t sent_again);

  // Stores the position, and that so many events more were sent again. False: the lane is no longer
  // ours, or the publication has another filter since and this position has passed what that takes.
  bool Checkpoint(const LanePosition& position, std::int64_t sent_again);

 private:
  // Whether it is this worker's or free, given the token in its row.
  bool MayTake(const std::string& token) const;

  const std::string publication_;
  const std::string filter_since_;
  const int slice_;
  const std::string lock_token_;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_STORE_LANE_ROW_H_

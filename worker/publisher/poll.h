// The poll: finds events of which no wake-up has told. A plain INSERT sends none.
//
// A claim of each lane would cost as much as there are publications. Most of them are still, and
// that their sequence has not moved tells so: those of many are read at once. A row that was
// written past the sequence is found by a claim, which one lane in turn has at each poll. Where
// there are few lanes, all claim at each poll.
#ifndef POSTBOX_WORKER_PUBLISHER_POLL_H_
#define POSTBOX_WORKER_PUBLISHER_POLL_H_

#include "worker/publisher/lane.h"

namespace postbox::publisher {

class Poll {
 public:
  TimestampTz next() const { return next_; }
  void Now() { next_ = 0; }
  // If it is time: the lanes are to claim that may have something.
  void Look(const std::vector<LanePointer>& lanes, TimestampTz now);

 private:
  TimestampTz next_ = 0;
  std::size_t first_ = 0;  // claims in any case
  std::size_t freed_ = 0;  // lanes whose plans were freed since the heap was given back
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_POLL_H_

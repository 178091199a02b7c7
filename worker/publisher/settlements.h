// The lanes that have results to store, and their turns. A lane whose publication has to wait holds
// up no other; one that has stored a part comes behind the others.
#ifndef POSTBOX_WORKER_PUBLISHER_SETTLEMENTS_H_
#define POSTBOX_WORKER_PUBLISHER_SETTLEMENTS_H_

#include <vector>

#include "worker/publisher/budget.h"
#include "worker/publisher/lane.h"

namespace postbox::publisher {

class Settlements {
 public:
  // Gives events that have results to their lanes. `ending`: the identity with which they were sent
  // is not used any more, so the results say nothing of the topic.
  void Add(Events events, bool ending);
  struct Stored {
    bool some = false;               // a lane has stored a part of its results
    std::vector<LanePointer> lanes;  // those that have stored all
  };
  Stored Step(TimestampTz now, Budget* budget);
  // When a lane stores results that had to wait.
  TimestampTz NextStep() const;

  // The worker leaves: after this time nothing is stored any more.
  void LeaveBy(TimestampTz time) { leave_by_ = time; }
  bool TooLate() const;
  // Failures do not count any more.
  void StopCounting() { leaving_ = true; }
  // Stores what is left, in turn. A lane that fails is left.
  void Drain(TimestampTz now, Budget* budget);

 private:
  std::vector<LanePointer> lanes_;  // also of publications that are gone
  bool leaving_ = false;
  TimestampTz leave_by_ = 0;  // 0: the worker stays
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SETTLEMENTS_H_

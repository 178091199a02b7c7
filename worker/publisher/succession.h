// Publications that were made or altered, and have no lanes here yet: those of an altered one
// finish first, then its keys are divided again if it is to have another number of lanes, and then
// its new lanes are made. So nothing is sent again, and keys stay in order.
//
//   Finish()   a lane of a publication as it was: what is on its way gets its results
//   Await()    the publication as it is
//   Proceed()  lanes that have finished store how far they are; new ones are made behind them
//
// Where too many events wait to divide the keys (source/log/divide_lanes.h), the lanes are made as
// they were, and it is tried again later.
//
// A paused publication is not awaited: its lanes finish and are given up, and none follows.
#ifndef POSTBOX_WORKER_PUBLISHER_SUCCESSION_H_
#define POSTBOX_WORKER_PUBLISHER_SUCCESSION_H_

#include "worker/publisher/lane.h"

namespace postbox::publisher {

class Succession {
 public:
  // The publications were read again: what was awaited is forgotten. Lanes that finish go on.
  void Begin();
  // Of this publication, with the full name of its topic, lanes are to be made.
  void Await(const Publication& publication, const std::string& topic) {
    awaited_.push_back({publication, topic});
  }
  // The lane is not one of these publications as they are: it finishes if one of them is its own,
  // altered.
  void Finish(const LanePointer& lane, const std::vector<Publication>& publications, Moment now);
  // Adds the lanes that can be made. Returns whether there were any.
  bool Proceed(Moment now, std::vector<LanePointer>* lanes);
  // If a publication could not be divided because too many events waited: asks for it to be read
  // again when there are fewer.
  void TryToDivideAgain(Moment now);

  const std::vector<LanePointer>& finishing() const { return finishing_; }
  std::size_t awaited() const { return awaited_.size(); }
  // When Proceed() or TryToDivideAgain() has something to do though nothing happens.
  Moment NextStep(Moment now) const;

 private:
  struct Awaited {
    Publication publication;
    std::string topic;
    Moment give_up_at = 0;  // of dividing its keys again; 0: not tried yet
  };
  // Whether its lanes may be made, with its keys divided again if it is to have another number.
  bool MayMakeLanes(Awaited* awaited, Moment now);

  std::vector<LanePointer> finishing_;
  std::vector<Awaited> awaited_;
  std::vector<Publication> undivided_;
  Moment divide_at_ = 0;
  std::chrono::milliseconds divide_delay_{0};
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SUCCESSION_H_

// How many events of a lane were sent again although Pub/Sub may have taken them before. It is
// counted where a fault is dealt with, and stored with what is stored there anyway, so that a run
// without a fault writes nothing for it:
//
//   a request that had no answer    each of its events, each time that it is sent once more
//   a lane of a log begins at its   what it had handed out since and is not known to be unsent
//   stored position again
//   a lane of a log is taken from   what is committed by then and not stored as read. How far the
//   a worker that has not given it  worker had come since it stored its position is not known, so
//   up: it is gone                  this may be more than was sent
//   leases of a table's rows are    the rows
//   taken over
//
// So an event that was sent twice is counted, and one that is counted was perhaps sent once. What
// is not stored yet is lost if the worker is killed: then the count is too low.
#ifndef POSTBOX_WORKER_PUBLISHER_DELIVERY_SENT_AGAIN_H_
#define POSTBOX_WORKER_PUBLISHER_DELIVERY_SENT_AGAIN_H_

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "worker/publisher/source/claimed_event.h"

namespace postbox::publisher {

class SentAgain {
 public:
  // Of a lane. The count is that of this process: a source that follows another one, whose
  // publication was altered, goes on with it.
  SentAgain(const std::string& publication, int slice);

  // A step begins, whose transaction may fail.
  void BeginStep() { before_ = count_; }
  // It has failed, and all that it did will be done again.
  void RollBack() { count_ = before_; }
  // It has failed, what it counted stays, and what it has stored is not.
  void RollBackStored() { count_ += before_; }

  void Add(std::int64_t events) { count_ += events; }
  // Those of these events, which have their results.
  void AddResults(std::span<const EventPointer> events);
  bool any() const { return count_ > 0; }
  // What is to be stored in this step.
  std::int64_t Take() { return std::exchange(count_, 0); }

 private:
  std::int64_t& count_;
  std::int64_t before_ = 0;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_DELIVERY_SENT_AGAIN_H_

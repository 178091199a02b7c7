// Which events of a lane another worker may have sent, from which the lane was taken although it
// had not given it up. How far that worker had come since it stored its position is not known.
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_MAYBE_SENT_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_MAYBE_SENT_H_

#include <algorithm>
#include <cstdint>
#include <limits>

#include "worker/publisher/source/claimed_event.h"

namespace postbox::publisher {

class MaybeSent {
 public:
  // The lane was taken from such a worker: all that is there when it is read first.
  void MarkAll() { upto_ = kUpToNow; }
  // The lane is read, and its sequence stands here.
  void NoteDrawn(std::int64_t last_seq) {
    if (upto_ == kUpToNow) upto_ = last_seq;
  }
  // All events up to this seq are read.
  void NotePassed(std::int64_t seq) {
    if (seq >= upto_) upto_ = 0;
  }
  void Clear() { upto_ = 0; }

  bool any() const { return upto_ != 0; }
  // How many of these.
  std::int64_t Count(const Events& events) const {
    if (!any()) return 0;
    return std::count_if(events.begin(), events.end(),
                         [&](const EventPointer& event) { return event->seq <= upto_; });
  }

 private:
  static constexpr std::int64_t kUpToNow = std::numeric_limits<std::int64_t>::max();
  std::int64_t upto_ = 0;  // a seq; 0: none
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_MAYBE_SENT_H_

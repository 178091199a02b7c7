// Where a worker waits: for a commit (its latch), a result (an eventfd), or a time. If the
// postmaster dies, the process ends here.
#ifndef POSTBOX_WORKER_PUBLISHER_WAIT_POINT_H_
#define POSTBOX_WORKER_PUBLISHER_WAIT_POINT_H_

#include "extension/base/guard.h"

extern "C" {
#include <storage/latch.h>
}

namespace postbox::publisher {

class WaitPoint {
 public:
  WaitPoint();
  WaitPoint(const WaitPoint&) = delete;
  WaitPoint& operator=(const WaitPoint&) = delete;

  // Clients write to it when they have results.
  int notify_fd() const { return notify_fd_; }
  // Returns false when the time is over and nothing happened.
  bool Sleep(long milliseconds);

 private:
  const int notify_fd_;
  WaitEventSet* wait_set_ = nullptr;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_WAIT_POINT_H_

#include "worker/publisher/wait_point.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "extension/shared/shared_state.h"

namespace postbox::publisher {

WaitPoint::WaitPoint() : notify_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (notify_fd_ < 0) Throw(ERRCODE_INSUFFICIENT_RESOURCES, "could not create an eventfd");
  Pg([&] {
    wait_set_ = POSTBOX_CREATE_WAIT_EVENT_SET(3);
    AddWaitEventToSet(wait_set_, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, nullptr);
    AddWaitEventToSet(wait_set_, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, nullptr, nullptr);
    AddWaitEventToSet(wait_set_, WL_SOCKET_READABLE, notify_fd_, nullptr, nullptr);
  });
}

bool WaitPoint::Sleep(long milliseconds) {
  ::WaitEvent event;
  const int events = Pg([&] {
    static const uint32 wait_event = ::postbox::WaitEvent("PostboxPublisher");
    return WaitEventSetWait(wait_set_, std::clamp(milliseconds, 1L, 60'000L), &event, 1,
                            wait_event);
  });
  if (events > 0 && (event.events & WL_SOCKET_READABLE) != 0) {
    uint64 count = 0;
    [[maybe_unused]] const ssize_t size = read(notify_fd_, &count, sizeof count);
  }
  return events > 0;
}

}  // namespace postbox::publisher

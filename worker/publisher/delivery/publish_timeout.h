// How long an event is tried.
#ifndef POSTBOX_WORKER_PUBLISHER_DELIVERY_PUBLISH_TIMEOUT_H_
#define POSTBOX_WORKER_PUBLISHER_DELIVERY_PUBLISH_TIMEOUT_H_

#include <algorithm>
#include <chrono>

#include "extension/shared/time_scale.h"

namespace postbox::publisher {

// An event must have its result before its lease ends. Else another worker would send it, too, and
// what follows of its key might overtake it. So there are two times, together three quarters of
// postbox.lease_timeout at most.

// From its first sending, in seconds: postbox.publish_timeout, but at most half of the lease.
inline int PublishTimeout() {
  const auto half = std::chrono::floor<std::chrono::seconds>(LeaseTime() / 2);
  return std::min(settings().publish_timeout, std::max(1, static_cast<int>(half.count())));
}

// From its claim to its first sending. What has waited for longer in the queue of its key is given
// back unsent. The lane of a log has a lease that its worker renews, so its events just wait.
inline std::chrono::milliseconds SendTimeout() { return LeaseTime() / 4; }

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_DELIVERY_PUBLISH_TIMEOUT_H_

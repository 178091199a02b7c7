// How long an event is tried.
#ifndef POSTBOX_WORKER_PUBLISHER_BASE_PUBLISH_TIMEOUT_H_
#define POSTBOX_WORKER_PUBLISHER_BASE_PUBLISH_TIMEOUT_H_

#include <algorithm>

#include "extension/shared/settings.h"

namespace postbox::publisher {

// In seconds: postbox.publish_timeout, but at most half of postbox.lease_timeout. An event must
// have its result before its lease ends. Else another worker would send it, too, and what follows
// of its key might overtake it.
inline int PublishTimeout() {
  return std::min(settings().publish_timeout, std::max(1, settings().lease_timeout / 2));
}

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_BASE_PUBLISH_TIMEOUT_H_

// Points in time of the publisher.
#ifndef POSTBOX_WORKER_PUBLISHER_BASE_TIME_AFTER_H_
#define POSTBOX_WORKER_PUBLISHER_BASE_TIME_AFTER_H_

#include "extension/base/postgres.h"

extern "C" {
#include <utils/timestamp.h>
}

namespace postbox::publisher {

inline TimestampTz After(TimestampTz from, int64 milliseconds) {
  return TimestampTzPlusMilliseconds(from, milliseconds);
}

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_BASE_TIME_AFTER_H_

// How long the publishers' own limits and pauses last: as long as the code says, or a part of that
// (postbox.time_scale), so that the tests of the server need not wait for minutes. Times that have
// their own settings are what these say, but for the lease, whose setting has no small values.
#ifndef POSTBOX_EXTENSION_SHARED_TIME_SCALE_H_
#define POSTBOX_EXTENSION_SHARED_TIME_SCALE_H_

#include <algorithm>
#include <chrono>

#include "extension/shared/settings.h"

namespace postbox {

inline std::chrono::milliseconds Scaled(std::chrono::milliseconds time) {
  return std::max(time * settings().time_scale / 100, std::chrono::milliseconds(1));
}

// What a time that was measured is for a rule whose limits are not scaled.
inline std::chrono::milliseconds Unscaled(std::chrono::milliseconds time) {
  return time * 100 / settings().time_scale;
}

// postbox.lease_timeout.
inline std::chrono::milliseconds LeaseTime() {
  return Scaled(std::chrono::seconds(settings().lease_timeout));
}

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_SHARED_TIME_SCALE_H_

// How long the constants of the policies last: postbox.time_scale.
#ifndef POSTBOX_WORKER_PUBLISHER_SCALE_H_
#define POSTBOX_WORKER_PUBLISHER_SCALE_H_

#include "extension/shared/settings.h"
#include "worker/publisher/policy/moment.h"

namespace postbox::publisher {

inline TimeScale Scale() { return {settings().time_scale}; }

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SCALE_H_

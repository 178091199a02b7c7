// Which lanes keep the plans of their statements. Those of a log take 400 kB: it has six
// partitions, and each plan all of them. To make them again takes some milliseconds. So a lane that
// is still gives its plans back, and early if many have theirs.
#ifndef POSTBOX_WORKER_PUBLISHER_KEPT_PLANS_H_
#define POSTBOX_WORKER_PUBLISHER_KEPT_PLANS_H_

#include "worker/publisher/lane.h"

namespace postbox::publisher {

// Frees the plans of a lane that has been still for long. Returns whether it had any.
bool FreePlansIfStill(Lane* lane, TimestampTz now);

// If too many lanes have plans, those that have been still for longest give theirs back. One that
// had an event within the last second does not: it may well have the next one soon. Returns how
// many did.
std::size_t LimitPlans(const std::vector<LanePointer>& lanes, TimestampTz now);

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_KEPT_PLANS_H_

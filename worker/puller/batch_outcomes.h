// What the puller tells of a batch that was applied: to Pub/Sub, in the status, and in the log.
// `dispositions` has one for each delivery of `batch`.
#ifndef POSTBOX_WORKER_PULLER_BATCH_OUTCOMES_H_
#define POSTBOX_WORKER_PULLER_BATCH_OUTCOMES_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "worker/puller/batch_dispositions.h"
#include "worker/puller/pull_status.h"

namespace postbox::puller {

// The handles of the messages to be acked.
std::vector<uint64_t> SettledHandles(const std::vector<Delivery>& batch,
                                     const std::vector<Disposition>& dispositions);

// Counts the settled ones by their outcomes. `ordered`: the service delivers a key in order, so an
// older version that came after a newer one was sent so, and is logged.
StatusNumbers CountOutcomes(const std::string& subscription, bool ordered,
                            const std::vector<Delivery>& batch,
                            const std::vector<Disposition>& dispositions);

// With the level debug: the batch, and each settled event.
void LogApplied(const std::string& subscription, const std::vector<Delivery>& batch,
                const std::vector<Disposition>& dispositions,
                std::chrono::steady_clock::duration took);

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_BATCH_OUTCOMES_H_

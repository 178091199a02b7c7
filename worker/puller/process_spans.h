// The spans `process` of a batch that was applied (worker/pubsub/traces/messaging_spans.h): one for
// each event of a sampled trace that was tried. The events of a batch share its transactions, so
// each has the time of the whole batch.
#ifndef POSTBOX_WORKER_PULLER_PROCESS_SPANS_H_
#define POSTBOX_WORKER_PULLER_PROCESS_SPANS_H_

#include <chrono>
#include <vector>

#include "worker/puller/batch_dispositions.h"
#include "worker/puller/config.h"

namespace postbox::puller {

// `config.spans` is not null. `took`: until now.
void AddProcessSpans(const SubscriptionConfig& config, const std::vector<Delivery>& batch,
                     const std::vector<Disposition>& dispositions,
                     std::chrono::steady_clock::duration took);

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_PROCESS_SPANS_H_

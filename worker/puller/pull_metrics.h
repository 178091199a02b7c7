// The metrics of a process that pulls: those of its subscriptions (subscription_metrics.h), and
// those of the process. Thread-safe.
#ifndef POSTBOX_WORKER_PULLER_PULL_METRICS_H_
#define POSTBOX_WORKER_PULLER_PULL_METRICS_H_

#include <prometheus/metric_family.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "worker/puller/subscription_metrics.h"

namespace postbox::puller {

class PullMetrics {
 public:
  // Those of a subscription. They begin again if it has another one of Pub/Sub.
  std::shared_ptr<SubscriptionMetrics> Of(const std::string& name,
                                          const std::string& pubsub_subscription);
  // Forgets the subscriptions that do not exist any more.
  void KeepOnly(const std::function<bool(const std::string& name)>& exists);

  // What tells how many spans of traces were dropped so far; before any Collect().
  void CountDroppedSpans(std::function<std::uint64_t()> count) { dropped_ = std::move(count); }

  std::vector<prometheus::MetricFamily> Collect() const;

 private:
  const std::chrono::system_clock::time_point started_ = std::chrono::system_clock::now();
  std::function<std::uint64_t()> dropped_ = [] { return std::uint64_t{0}; };
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<SubscriptionMetrics>> subscriptions_;
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_PULL_METRICS_H_

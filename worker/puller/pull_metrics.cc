#include "worker/puller/pull_metrics.h"

#include <utility>

namespace postbox::puller {
namespace {

using prometheus::MetricFamily;

MetricFamily Gauge(const char* name, const char* help, double value) {
  MetricFamily family{name, help, prometheus::MetricType::Gauge, {}};
  family.metric.emplace_back().gauge.value = value;
  return family;
}

}  // namespace

std::shared_ptr<SubscriptionMetrics> PullMetrics::Of(const std::string& name,
                                                     const std::string& pubsub_subscription) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::shared_ptr<SubscriptionMetrics>& metrics = subscriptions_[name];
  // One that is paused has no full name.
  const bool same = metrics && (pubsub_subscription.empty() ||
                                metrics->destination() ==
                                    SubscriptionMetrics::DestinationOf(pubsub_subscription));
  if (!same) metrics = std::make_shared<SubscriptionMetrics>(name, pubsub_subscription);
  return metrics;
}

void PullMetrics::KeepOnly(const std::function<bool(const std::string& name)>& exists) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(subscriptions_, [&exists](const auto& entry) { return !exists(entry.first); });
}

std::vector<MetricFamily> PullMetrics::Collect() const {
  SubscriptionMetrics::Families families;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [name, metrics] : subscriptions_) metrics->Collect(&families);
  }
  MetricFamily info = Gauge("postbox_info", "The version of this process.", 1);
  info.metric.front().label.push_back({"version", POSTBOX_VERSION});
  std::vector<MetricFamily> all;
  all.push_back(std::move(info));
  const std::chrono::duration<double> start = started_.time_since_epoch();
  all.push_back(Gauge("process_start_time_seconds",
                      "When the process began, in seconds since the epoch.", start.count()));
  MetricFamily dropped{"postbox_trace_spans_dropped_total",
                       "Spans of this process that no collector has taken.",
                       prometheus::MetricType::Counter,
                       {}};
  dropped.metric.emplace_back().counter.value = static_cast<double>(dropped_());
  all.push_back(std::move(dropped));
  for (auto& [name, family] : families) all.push_back(std::move(family));
  return all;
}

}  // namespace postbox::puller

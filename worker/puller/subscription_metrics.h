// The metrics of one subscription: counters and histograms, which the threads of the subscription
// feed, and gauges, which are looked up when they are read. They outlive a runner that is started
// again, and end with the subscription. Thread-safe.
//
//   - What is counted often costs an addition for a batch, and a mutex for a transaction.
//   - Names and labels of `messaging_...` and `rpc_...` are those of OpenTelemetry's semantic
//     conventions, version 1.36.0. No label has a value for an event, a key or a type.
//   - Error types are SQLSTATEs or codes of gRPC. Handlers may raise any SQLSTATE: after
//     kMostErrorTypes the next ones are counted as `_OTHER`, the name of the conventions for that.
#ifndef POSTBOX_WORKER_PULLER_SUBSCRIPTION_METRICS_H_
#define POSTBOX_WORKER_PULLER_SUBSCRIPTION_METRICS_H_

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "worker/pubsub/pull/subscriber.h"
#include "worker/puller/key_queues.h"
#include "worker/puller/pull_status.h"

namespace postbox::puller {

// What a subscription has at one moment.
struct SubscriptionGauges {
  PullStatus::Stream stream = PullStatus::Stream::kConnecting;
  bool retrying = false;
  size_t in_hand = 0;
  std::optional<std::chrono::system_clock::time_point> oldest{};  // publish time, of those in hand
  std::map<std::string, WaitingEvents, std::less<>> waiting{};    // by event type
  size_t suspended_types = 0;
  int connections = 0;
  int busy = 0;
  int idle = 0;
  int unanswered = 0;  // of the busy ones, those whose statement has had no answer for long
};

// Which event types the projections take that a subscription feeds, by their names.
using ProjectionTypes = std::map<std::string, std::vector<std::string>>;

class SubscriptionMetrics {
 public:
  using Families = std::map<std::string, prometheus::MetricFamily>;  // by name
  using Duration = std::chrono::steady_clock::duration;
  static constexpr size_t kMostErrorTypes = 32;

  // `pubsub_subscription`: the full name, or empty as long as it is not known.
  SubscriptionMetrics(std::string name, const std::string& pubsub_subscription);

  const std::string& destination() const { return destination_; }
  static std::string DestinationOf(const std::string& pubsub_subscription);

  // Messages have come, of which the newest was published then.
  void Received(size_t messages, std::chrono::system_clock::time_point newest);
  // A transaction of so many messages was committed, so long after they were taken.
  void Committed(size_t messages, Duration took);
  // A transaction failed, or a connection broke: then `sqlstate` is empty.
  void AttemptFailed(const std::string& sqlstate, Duration took);
  // What became of messages. `outcome`: a word that needs no escapes.
  void Settled(const StatusNumbers& numbers);
  void Rejected() { outcomes_.at("rejected")->Increment(); }
  void Called(const pubsub::CallReport& call);

  void SetProjections(ProjectionTypes projections);
  // Who knows the gauges; empty: they are not known any more. After the call the function that was
  // set before is not called.
  void SetLook(std::function<SubscriptionGauges()> look);

  // Adds its series to those of the other subscriptions.
  void Collect(Families* families) const;

 private:
  using Labels = std::map<std::string, std::string>;

  Labels MessagingLabels(const char* operation) const;
  // `error_type`, or `_OTHER` when there are too many.
  std::string Bounded(const std::string& error_type);
  void CollectGauges(const SubscriptionGauges& gauges, Families* families) const;

  const std::string name_;
  const std::string destination_;  // short
  prometheus::Registry registry_;
  prometheus::Counter* consumed_;
  prometheus::Family<prometheus::Histogram>* process_;
  prometheus::Histogram* committed_;  // of it
  prometheus::Family<prometheus::Histogram>* operations_;
  prometheus::Family<prometheus::Histogram>* calls_;
  prometheus::Family<prometheus::Counter>* failures_;
  std::map<std::string, prometheus::Counter*> outcomes_;
  std::atomic<std::int64_t> lag_ms_ = -1;  // -1: nothing has come

  mutable std::mutex mutex_;  // guards what follows, and is held while look_ is called
  std::set<std::string> error_types_;
  ProjectionTypes projections_;
  std::function<SubscriptionGauges()> look_;
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_SUBSCRIPTION_METRICS_H_

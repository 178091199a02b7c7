#include "worker/puller/subscription_metrics.h"

#include <prometheus/gauge.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "proto/rules/error_class.h"

namespace postbox::puller {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

// In seconds; the same for all histograms of Postbox.
const prometheus::Histogram::BucketBoundaries kBuckets = {
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300};
// The SQLSTATE that stands for a connection that broke: connection_failure.
constexpr char kConnectionFailure[] = "08006";
constexpr const char* kOutcomes[] = {"applied", "duplicate", "stale",
                                     "ignored", "rejected",  "parked"};
constexpr std::pair<PullStatus::Stream, const char*> kStreams[] = {
    {PullStatus::Stream::kConnecting, "connecting"},
    {PullStatus::Stream::kConnected, "connected"},
    {PullStatus::Stream::kReconnecting, "reconnecting"},
    {PullStatus::Stream::kFailed, "failed"},
    {PullStatus::Stream::kPaused, "paused"}};

double Seconds(SubscriptionMetrics::Duration time) {
  return std::chrono::duration<double>(time).count();
}

// How long ago that was, at least 0: the clocks of Pub/Sub and of this machine differ.
double Age(std::chrono::system_clock::time_point time) {
  const std::chrono::duration<double> age = std::chrono::system_clock::now() - time;
  return std::max(0.0, age.count());
}

prometheus::Family<prometheus::Histogram>& Histograms(const char* name, const char* help,
                                                      prometheus::Registry* registry) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(*registry);
}

void ObserveMany(prometheus::Histogram* histogram, size_t count, double value) {
  std::vector<double> increments(kBuckets.size() + 1);
  const auto bucket = std::lower_bound(kBuckets.begin(), kBuckets.end(), value);
  const auto number = static_cast<double>(count);
  increments[static_cast<size_t>(bucket - kBuckets.begin())] = number;
  histogram->ObserveMultiple(increments, number * value);
}

// `Acknowledge` for example.
const char* MethodOf(pubsub::CallReport::Kind kind) {
  switch (kind) {
    case pubsub::CallReport::Kind::kStream:
      return "google.pubsub.v1.Subscriber/StreamingPull";
    case pubsub::CallReport::Kind::kAck:
      return "google.pubsub.v1.Subscriber/Acknowledge";
    default:
      return "google.pubsub.v1.Subscriber/ModifyAckDeadline";
  }
}

const char* OperationOf(pubsub::CallReport::Kind kind) {
  switch (kind) {
    case pubsub::CallReport::Kind::kAck:
      return "ack";
    case pubsub::CallReport::Kind::kNack:
      return "nack";
    case pubsub::CallReport::Kind::kModack:
      return "modack";
    default:
      return "receive";
  }
}

}  // namespace

SubscriptionMetrics::SubscriptionMetrics(std::string name, const std::string& pubsub_subscription)
    : name_(std::move(name)), destination_(DestinationOf(pubsub_subscription)) {
  consumed_ = &prometheus::BuildCounter()
                   .Name("messaging_client_consumed_messages_total")
                   .Help("Messages that were received from Pub/Sub, redeliveries included.")
                   .Register(registry_)
                   .Add(MessagingLabels("receive"));
  process_ = &Histograms(
      "messaging_process_duration_seconds",
      "Time from the moment when a message is taken to the commit of its transaction, for each "
      "message; with error_type, to the failure of its transaction, for each transaction.",
      &registry_);
  committed_ = &process_->Add(MessagingLabels("process"), kBuckets);
  operations_ = &Histograms(
      "messaging_client_operation_duration_seconds",
      "Duration of requests to Pub/Sub: the wait for the next messages of the stream (receive), "
      "acknowledgements (ack), messages that are given back (nack), and leases (modack).",
      &registry_);
  calls_ =
      &Histograms("rpc_client_call_duration_seconds",
                  "Duration of gRPC calls to Pub/Sub. Of a stream it is its life.", &registry_);
  failures_ = &prometheus::BuildCounter()
                   .Name("postbox_process_errors_total")
                   .Help(
                       "Transactions that failed, by SQLSTATE. Their events are tried again, "
                       "rejected or parked.")
                   .Register(registry_);
  auto& outcomes = prometheus::BuildCounter()
                       .Name("postbox_processed_events_total")
                       .Help("Events that were settled, by what became of them.")
                       .Register(registry_);
  for (const char* outcome : kOutcomes) {
    outcomes_[outcome] = &outcomes.Add({{"subscription", name_}, {"outcome", outcome}});
  }
}

std::string SubscriptionMetrics::DestinationOf(const std::string& pubsub_subscription) {
  return pubsub_subscription.substr(pubsub_subscription.rfind('/') + 1);
}

SubscriptionMetrics::Labels SubscriptionMetrics::MessagingLabels(const char* operation) const {
  return {{"subscription", name_},
          {"messaging_system", "gcp_pubsub"},
          {"messaging_destination_name", destination_},
          {"messaging_operation_name", operation}};
}

std::string SubscriptionMetrics::Bounded(const std::string& error_type) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (error_types_.contains(error_type)) return error_type;
  if (error_types_.size() >= kMostErrorTypes) return "_OTHER";
  error_types_.insert(error_type);
  return error_type;
}

void SubscriptionMetrics::Received(size_t messages, std::chrono::system_clock::time_point newest) {
  consumed_->Increment(static_cast<double>(messages));
  lag_ms_ = static_cast<std::int64_t>(Age(newest) * 1000);
}

void SubscriptionMetrics::Committed(size_t messages, Duration took) {
  ObserveMany(committed_, messages, Seconds(took));
}

void SubscriptionMetrics::AttemptFailed(const std::string& sqlstate, Duration took) {
  const std::string type = Bounded(sqlstate.empty() ? kConnectionFailure : sqlstate);
  failures_->Add({{"subscription", name_}, {"error_type", type}}).Increment();
  Labels labels = MessagingLabels("process");
  labels["error_type"] = type;
  process_->Add(labels, kBuckets).Observe(Seconds(took));
}

void SubscriptionMetrics::Settled(const StatusNumbers& numbers) {
  const std::pair<const char*, std::int64_t> settled[] = {
      {"applied", numbers.applied - numbers.ignored},
      {"ignored", numbers.ignored},
      {"duplicate", numbers.duplicates},
      {"stale", numbers.stale},
      {"rejected", numbers.dead_letters},
      {"parked", numbers.parked}};
  for (const auto& [outcome, count] : settled) {
    if (count > 0) outcomes_.at(outcome)->Increment(static_cast<double>(count));
  }
}

void SubscriptionMetrics::Called(const pubsub::CallReport& call) {
  const std::string code(pubsub::StatusCodeName(call.code));
  Labels operation = MessagingLabels(OperationOf(call.kind));
  if (call.code != pubsub::kOk) operation["error_type"] = code;
  const double took = Seconds(call.took);
  using Kind = pubsub::CallReport::Kind;
  // The life of a stream is no operation, unless it ends with an error.
  if (call.kind != Kind::kStream || call.code != pubsub::kOk) {
    operations_->Add(operation, kBuckets).Observe(took);
  }
  if (call.kind == Kind::kReceive) return;
  calls_
      ->Add({{"subscription", name_},
             {"rpc_system", "grpc"},
             {"rpc_method", MethodOf(call.kind)},
             {"rpc_response_status_code", code}},
            kBuckets)
      .Observe(took);
}

void SubscriptionMetrics::SetProjections(ProjectionTypes projections) {
  const std::lock_guard<std::mutex> lock(mutex_);
  projections_ = std::move(projections);
}

void SubscriptionMetrics::SetLook(std::function<SubscriptionGauges()> look) {
  const std::lock_guard<std::mutex> lock(mutex_);
  look_ = std::move(look);
}

void SubscriptionMetrics::Collect(Families* families) const {
  for (MetricFamily& family : registry_.Collect()) {
    if (family.metric.empty()) continue;
    const auto [known, is_new] = families->try_emplace(family.name, family);
    if (is_new) continue;
    std::move(family.metric.begin(), family.metric.end(), std::back_inserter(known->second.metric));
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (look_) CollectGauges(look_(), families);
}

namespace {

// Adds one gauge of a subscription, with another label perhaps.
class GaugeWriter {
 public:
  GaugeWriter(const std::string& subscription, SubscriptionMetrics::Families* families)
      : subscription_(subscription), families_(families) {}

  void Add(const char* name, const char* help, double value, const char* label = nullptr,
           const std::string& label_value = {}) {
    MetricFamily& family = (*families_)[name];
    family.name = name;
    family.help = help;
    family.type = MetricType::Gauge;
    ClientMetric& metric = family.metric.emplace_back();
    metric.label.push_back({"subscription", subscription_});
    if (label != nullptr) metric.label.push_back({label, label_value});
    metric.gauge.value = value;
  }

 private:
  const std::string& subscription_;
  SubscriptionMetrics::Families* const families_;
};

// What waits for a projection, by the event types that it takes.
WaitingEvents WaitingFor(const std::vector<std::string>& types, const SubscriptionGauges& gauges) {
  WaitingEvents all;
  for (const std::string& type : types) {
    const auto waiting = gauges.waiting.find(type);
    if (waiting == gauges.waiting.end()) continue;
    all.events += waiting->second.events;
    all.versions = std::max(all.versions, waiting->second.versions);
    all.oldest = std::min(all.oldest, waiting->second.oldest);
  }
  return all;
}

}  // namespace

void SubscriptionMetrics::CollectGauges(const SubscriptionGauges& gauges,
                                        Families* families) const {
  GaugeWriter writer(name_, families);
  writer.Add("postbox_messages_in_hand",
             "Messages that were received and are neither applied nor given back.",
             static_cast<double>(gauges.in_hand));
  writer.Add("postbox_oldest_unacknowledged_age_seconds",
             "Time since the oldest of the messages in hand was published; 0 without any.",
             gauges.oldest ? Age(*gauges.oldest) : 0);
  if (const std::int64_t lag = lag_ms_; lag >= 0) {
    writer.Add("postbox_receive_lag_seconds",
               "Age of the newest message when it came, the last time that messages came.",
               static_cast<double>(lag) / 1000);
  }
  for (const auto& [state, word] : kStreams) {
    writer.Add("postbox_stream_state", "1 for the state that the stream of messages has.",
               gauges.stream == state ? 1 : 0, "state", word);
  }
  writer.Add("postbox_suspended_event_types",
             "Event types whose events wait because they all fail, or because what takes them is "
             "paused.",
             static_cast<double>(gauges.suspended_types));
  for (const auto& [projection, types] : projections_) {
    const WaitingEvents waiting = WaitingFor(types, gauges);
    writer.Add("postbox_projection_lag_versions",
               "Versions of one aggregate that wait here for the projection, of the one with most.",
               static_cast<double>(waiting.versions), "projection", projection);
    writer.Add("postbox_projection_lag_seconds",
               "Age of the oldest event that waits here for the projection; 0 without any.",
               waiting.events > 0 ? Age(waiting.oldest) : 0, "projection", projection);
  }
  writer.Add("postbox_connections", "Connections of the appliers to the database.",
             gauges.connections, "state", "open");
  const std::pair<const char*, int> appliers[] = {
      {"busy", gauges.busy}, {"idle", gauges.idle}, {"unanswered", gauges.unanswered}};
  for (const auto& [state, number] : appliers) {
    writer.Add("postbox_appliers",
               "Appliers by what they do. Those whose statement has had no answer for long are "
               "unanswered.",
               number, "state", state);
  }
  writer.Add("postbox_retrying", "1 while something has failed and is tried again.",
             gauges.retrying ? 1 : 0);
}

}  // namespace postbox::puller

// postbox.list_metrics(): what shared memory counts for this database, for postbox.metrics. It
// reads no table, so its cost does not depend on any backlog.
//
// The metrics below are the only list of names. docs/guides/metrics.md has the same
// (tests/tap/metrics.pl).
#include <cmath>

#include "extension/base/guard.h"
#include "extension/base/library_version.h"
#include "extension/base/relation.h"
#include "extension/rules/json_string.h"
#include "extension/shared/metrics.h"
#include "extension/shared/settings.h"
#include "extension/shared/shared_state.h"
#include "proto/rules/error_class.h"

extern "C" {
#include <funcapi.h>
#include <utils/fmgrprotos.h>
#include <utils/jsonb.h>
}

namespace postbox {
namespace {

struct Metric {
  const char* name;
  const char* type;
  const char* unit;
  const char* help;
};

constexpr Metric kSent = {
    "messaging_client_sent_messages_total", "counter", "messages",
    "Attempts to send a message to Pub/Sub; one that is sent again counts again"};
constexpr Metric kOperations = {"messaging_client_operation_duration_seconds", "histogram",
                                "seconds",
                                "How long publishing a batch took, from its first request to its "
                                "last answer, retries included"};
constexpr Metric kCalls = {"rpc_client_call_duration_seconds", "histogram", "seconds",
                           "How long a request to Pub/Sub took"};
constexpr Metric kPublished = {"postbox_published_events_total", "counter", "events",
                               "Events that Pub/Sub has accepted"};
constexpr Metric kErrors = {"postbox_publish_errors_total", "counter", "requests",
                            "Requests to publish that failed"};
constexpr Metric kLatency = {"postbox_publish_latency_seconds", "histogram", "seconds",
                             "From occurred_at of an event to its confirmation by Pub/Sub"};
constexpr Metric kPending = {
    "postbox_pending_events_estimate", "gauge", "events",
    "Events that are ready and wait to be published; exact up to 1000, an estimate above"};
constexpr Metric kOldest = {
    "postbox_oldest_pending_age_seconds", "gauge", "seconds",
    "Age of the oldest event that is ready to be published; 0 if none waits"};
constexpr Metric kParked = {"postbox_parked_events", "gauge", "events",
                            "Events that are parked, or wait behind a parked event of their key"};
constexpr Metric kParkedKeys = {"postbox_parked_keys", "gauge", "keys",
                                "Keys of the first 10000 parked events"};
constexpr Metric kAttempts = {
    "postbox_max_delivery_attempts", "gauge", "attempts",
    "The most failed attempts that one of the first 10000 parked events has had"};
constexpr Metric kState = {"postbox_publication_state", "gauge", "",
                           "1 for the state that publication_status shows, 0 for the others"};
constexpr Metric kStandby = {"postbox_standby_wait_seconds", "gauge", "seconds",
                             "How long events have been held for a synchronous standby; 0 if none"};
constexpr Metric kEmitted = {"postbox_emitted_events_total", "counter", "events",
                             "Events that committed transactions have emitted"};
constexpr Metric kOutboxBehind = {
    "postbox_outbox_retention_behind_seconds", "gauge", "seconds",
    "How long events have been kept beyond the retention of the outbox; 0 if none"};
constexpr Metric kApplied = {"postbox_applied_events_total", "counter", "events",
                             "Events that committed transactions have applied, by outcome"};
constexpr Metric kApply = {"postbox_apply_duration_seconds", "histogram", "seconds",
                           "How long a call of inbox_apply or inbox_apply_batch took"};
constexpr Metric kDeadLetters = {"postbox_dead_letters_at_least", "gauge", "events",
                                 "Dead letters that are not parked, among the first 10000 rows"};
constexpr Metric kInboxKeys = {"postbox_inbox_parked_keys_at_least", "gauge", "keys",
                               "Parked keys of the inbox, counted up to 10000"};
constexpr Metric kInboxBehind = {
    "postbox_inbox_retention_behind_seconds", "gauge", "seconds",
    "How long the inbox has been due for a new generation; 0 if it is not"};
constexpr Metric kPullers = {"postbox_subscription_pullers", "gauge", "processes",
                             "Pullers of the subscription that have reported within a minute"};
constexpr Metric kExpires = {"postbox_credential_expires_timestamp_seconds", "gauge", "seconds",
                             "When the current token of the credential expires, in Unix time"};
constexpr Metric kRunning = {"postbox_workers_running", "gauge", "processes",
                             "Publisher workers of the database that run"};
constexpr Metric kWanted = {"postbox_workers_wanted", "gauge", "processes",
                            "Publisher workers that the database is to have"};
constexpr Metric kShort = {"postbox_workers_short", "gauge", "",
                           "1 if a worker is missing for lack of a slot, 0 if none is"};
constexpr Metric kAge = {"postbox_metrics_gauges_age_seconds", "gauge", "seconds",
                         "How long ago a worker began to measure the gauges of the database"};
constexpr Metric kNotCounted = {
    "postbox_metrics_not_counted_total", "counter", "",
    "How often something was not counted, in any database, because the registry was full"};
constexpr Metric kSpansDropped = {
    "postbox_trace_spans_dropped_total", "counter", "spans",
    "Spans of publisher workers, in any database, that no collector has taken"};
constexpr Metric kInfo = {"postbox_info", "gauge", "",
                          "1; the label is the version of the library"};

// In seconds. Databases that take turns for lack of slots have their gauges in between, too.
constexpr double kWorkerAway = 120;

// The labels of a metric, as JSON in the encoding of the database. Names need no escapes.
class Labels {
 public:
  Labels With(std::string_view name, std::string_view value) const {
    Labels more = *this;
    more.json_ += json_.empty() ? "" : ", ";
    more.json_.append("\"").append(name).append("\": ");
    AppendJsonString(value, &more.json_);
    return more;
  }
  std::string Json() const { return '{' + json_ + '}'; }

 private:
  std::string json_;
};

class MetricRows {
 public:
  explicit MetricRows(ReturnSetInfo* result)
      : result_(result), scratch_(Pg([] {
          return AllocSetContextCreate(CurrentMemoryContext, "postbox metrics",
                                       ALLOCSET_SMALL_SIZES);
        })) {}

  void Add(const Metric& metric, const Labels& labels, double value) {
    AddNamed(metric, metric.name, labels, value);
  }
  // Nothing if it was not measured, or long ago.
  void Add(const Metric& metric, const Labels& labels, const Gauge& gauge) {
    const double value = Known(gauge);
    if (!std::isnan(value)) Add(metric, labels, value);
  }
  double Known(const Gauge& gauge) const {
    return gauges_hold_ ? gauge.load() : std::numeric_limits<double>::quiet_NaN();
  }
  // From now on no gauge is known.
  void HideGauges() { gauges_hold_ = false; }
  void Add(const Metric& metric, const Labels& labels, const Counter& counter) {
    Add(metric, labels, static_cast<double>(Value(counter)));
  }

  void Add(const Metric& metric, const Labels& labels, const Histogram& histogram) {
    uint64 count = 0;
    const std::string name = metric.name;
    for (size_t i = 0; i < kBuckets; ++i) {
      count += Value(histogram.counts[i]);
      AddNamed(metric, name + "_bucket", labels.With("le", kBucketNames[i]),
               static_cast<double>(count));
    }
    AddNamed(metric, name + "_sum", labels, static_cast<double>(Value(histogram.micros)) / 1e6);
    AddNamed(metric, name + "_count", labels, static_cast<double>(count));
  }

 private:
  void AddNamed(const Metric& metric, const std::string& name, const Labels& labels, double value) {
    const std::string json = labels.Json();
    Pg([&] {
      const MemoryContext before = MemoryContextSwitchTo(scratch_);
      Datum values[] = {CStringGetTextDatum(name.c_str()),
                        CStringGetTextDatum(metric.type),
                        CStringGetTextDatum(metric.help),
                        CStringGetTextDatum(metric.unit),
                        DirectFunctionCall1(jsonb_in, CStringGetDatum(json.c_str())),
                        Float8GetDatum(value)};
      bool nulls[std::size(values)] = {};
      tuplestore_putvalues(result_->setResult, result_->setDesc, values, nulls);
      MemoryContextSwitchTo(before);
      MemoryContextReset(scratch_);
    });
  }

  ReturnSetInfo* const result_;
  const MemoryContext scratch_;  // of the call, for one row at a time
  bool gauges_hold_ = true;
};

// An object of this database, copied under the lock.
struct Metered {
  size_t index;
  Oid relation;  // of an outbox or inbox
  std::string name;
};

template <class PoolType>
std::vector<Metered> FindMetered(const PoolType& pool) {
  std::vector<Metered> found;
  for (size_t i = 0; i < PoolType::kSize; ++i) {
    const uint64 owner = pool.keys[i].owner;
    if (owner >> 32 == MyDatabaseId)
      found.push_back({i, static_cast<Oid>(owner), pool.keys[i].name});
  }
  return found;
}

// What the slots say.
struct Workers {
  int running = 0, starting = 0, wanted = 0;
  bool lacks_slot = false;
  std::vector<StandbyWait> waits;

  double WaitOf(const std::string& publication) const {
    const uint64 hash = HashOfName(publication);
    const TimestampTz now = GetCurrentTimestamp();
    TimestampTz since = now;
    for (const StandbyWait& wait : waits) {
      if (wait.publication == hash || wait.publication == 0) since = std::min(since, wait.since);
    }
    return static_cast<double>(now - since) / USECS_PER_SEC;
  }
};

Workers LookAtWorkers() {
  SharedState* state = shared_state();
  Workers workers;
  workers.wanted = settings().publishers;
  workers.waits.reserve(static_cast<size_t>(kMaxWorkers) * kMaxStandbyWaits);
  LWLockAcquire(SharedStateLock(), LW_SHARED);
  for (const WorkerSlot& slot : state->workers) {
    if (slot.state == SlotState::kFree || slot.state == SlotState::kExited) continue;
    if (pg_atomic_read_u32(const_cast<pg_atomic_uint32*>(&slot.database)) != MyDatabaseId) continue;
    ++(slot.state == SlotState::kRunning ? workers.running : workers.starting);
    if (slot.state == SlotState::kRunning && slot.publishers != kAsServer) {
      workers.wanted = slot.publishers;
    }
    workers.waits.insert(workers.waits.end(), slot.standby_waits,
                         slot.standby_waits + slot.standby_wait_count);
  }
  const int there = workers.running + workers.starting;
  const bool no_slot = state->start_problem == StartProblem::kNoWorkerSlot ||
                       state->start_problem == StartProblem::kNoServerSlot;
  workers.lacks_slot =
      there == 0 ? IsUnserved(state, MyDatabaseId) : no_slot && there < workers.wanted;
  LWLockRelease(SharedStateLock());
  return workers;
}

void AddCalls(const PublishMeter& meter, const Labels& publication, const Labels& messaging,
              MetricRows* rows) {
  const Labels operation = messaging.With("messaging_operation_name", "publish");
  const Labels call = publication.With("rpc_system", "grpc")
                          .With("rpc_method", "google.pubsub.v1.Publisher/Publish");
  for (size_t code = 0; code < kStatusCodes; ++code) {
    const std::string_view name = pubsub::StatusCodeName(static_cast<int>(code));
    // Of what has failed in no such way, nothing is shown.
    const auto happened = [code](const Histogram& histogram) {
      return code == 0 || std::any_of(histogram.counts.begin(), histogram.counts.end(),
                                      [](const Counter& count) { return Value(count) > 0; });
    };
    if (happened(meter.operations[code])) {
      rows->Add(kOperations, code == 0 ? operation : operation.With("error_type", name),
                meter.operations[code]);
    }
    if (!happened(meter.calls[code])) continue;
    rows->Add(kCalls, call.With("rpc_response_status_code", name), meter.calls[code]);
    if (code == 0) continue;
    uint64 errors = 0;
    for (const Counter& count : meter.calls[code].counts) errors += Value(count);
    rows->Add(kErrors, publication.With("error_type", name), static_cast<double>(errors));
  }
}

void AddPublication(const Metered& one, const std::string& topic, const Workers& workers,
                    MetricRows* rows) {
  const MetricsState& metrics = *metrics_state();
  const PublicationMetrics& data = metrics.publications.data[one.index];
  const PublishMeter& meter = metrics.meters[one.index];
  using P = PublicationMetrics;
  const Labels publication = Labels().With("publication", one.name);
  const Labels messaging =
      publication.With("messaging_system", "gcp_pubsub").With("messaging_destination_name", topic);
  rows->Add(kSent, messaging.With("messaging_operation_name", "publish"), meter.sent);
  AddCalls(meter, publication, messaging, rows);
  rows->Add(kPublished, publication, meter.published);
  rows->Add(kLatency, publication, data.latency);
  rows->Add(kPending, publication, data.gauges[P::kPending]);
  rows->Add(kOldest, publication, data.gauges[P::kOldest]);
  rows->Add(kParked, publication, data.gauges[P::kParked]);
  rows->Add(kParkedKeys, publication, data.gauges[P::kParkedKeys]);
  rows->Add(kAttempts, publication, data.gauges[P::kAttempts]);
  const double state = rows->Known(data.gauges[P::kState]);
  for (size_t i = 0; i < kPublicationStates.size() && !std::isnan(state); ++i) {
    rows->Add(kState, publication.With("state", kPublicationStates[i]),
              static_cast<double>(static_cast<size_t>(state) == i));
  }
  rows->Add(kStandby, publication, workers.WaitOf(one.name));
}

void AddInbox(const InboxMetrics& data, const Labels& inbox, MetricRows* rows) {
  static constexpr const char* kOutcomeNames[kMetricOutcomes] = {"applied", "duplicate", "stale",
                                                                 "ignored", "rejected",  "parked"};
  for (size_t i = 0; i < kMetricOutcomes; ++i) {
    rows->Add(kApplied, inbox.With("outcome", kOutcomeNames[i]), data.applied[i]);
  }
  rows->Add(kApply, inbox, data.durations);
  rows->Add(kDeadLetters, inbox, data.gauges[InboxMetrics::kDeadLetters]);
  rows->Add(kInboxKeys, inbox, data.gauges[InboxMetrics::kParkedKeys]);
  rows->Add(kInboxBehind, inbox, data.gauges[InboxMetrics::kRetentionBehind]);
}

// What this database has in the registry.
struct MeteredObjects {
  std::vector<Metered> publications, outboxes, inboxes, subscriptions, credentials, databases;
  std::vector<std::string> topics;  // of the publications
};

MeteredObjects ReadRegistry() {
  const MetricsState& metrics = *metrics_state();
  MeteredObjects all;
  LWLockAcquire(MetricsLock(), LW_SHARED);
  all.publications = FindMetered(metrics.publications);
  all.outboxes = FindMetered(metrics.outboxes);
  all.inboxes = FindMetered(metrics.inboxes);
  all.subscriptions = FindMetered(metrics.subscriptions);
  all.credentials = FindMetered(metrics.credentials);
  all.databases = FindMetered(metrics.databases);
  for (const Metered& one : all.publications) {
    all.topics.emplace_back(metrics.publications.data[one.index].topic);
  }
  LWLockRelease(MetricsLock());
  return all;
}

void AddObjects(const MeteredObjects& all, const Workers& workers, MetricRows* rows) {
  const MetricsState& metrics = *metrics_state();
  for (size_t i = 0; i < all.publications.size(); ++i) {
    AddPublication(all.publications[i], all.topics[i], workers, rows);
  }
  // What was dropped, and is not forgotten yet, has no name.
  for (const Metered& one : all.outboxes) {
    const std::string name = RelationName(one.relation);
    if (name.empty()) continue;
    const OutboxMetrics& data = metrics.outboxes.data[one.index];
    const Labels outbox = Labels().With("outbox", name);
    rows->Add(kEmitted, outbox, data.emitted);
    rows->Add(kOutboxBehind, outbox, data.gauges[OutboxMetrics::kRetentionBehind]);
  }
  for (const Metered& one : all.inboxes) {
    const std::string name = RelationName(one.relation);
    if (name.empty()) continue;
    AddInbox(metrics.inboxes.data[one.index], Labels().With("inbox", name), rows);
  }
  for (const Metered& one : all.subscriptions) {
    rows->Add(kPullers, Labels().With("subscription", one.name),
              metrics.subscriptions.data[one.index].gauges[SubscriptionMetrics::kPullers]);
  }
  for (const Metered& one : all.credentials) {
    rows->Add(kExpires, Labels().With("credential", one.name),
              metrics.credentials.data[one.index].gauges[CredentialMetrics::kExpires]);
  }
}

// How long ago a worker began to measure the gauges, in seconds; NaN: none has.
double AgeOfGauges(const MeteredObjects& all) {
  for (const Metered& one : all.databases) {
    const double at =
        metrics_state()->databases.data[one.index].gauges[DatabaseMetrics::kMeasuredAt];
    return std::max(static_cast<double>(GetCurrentTimestamp()) - at, 0.0) / USECS_PER_SEC;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

// Without a worker what was measured goes out of date. One that is started again soon makes no gap.
bool GaugesHold(const Workers& workers, double age) {
  return workers.running > 0 || (workers.wanted > 0 && age < kWorkerAway);
}

void AddDatabase(const MeteredObjects& all, const Workers& workers, MetricRows* rows) {
  const MetricsState& metrics = *metrics_state();
  rows->Add(kRunning, {}, static_cast<double>(workers.running));
  rows->Add(kWanted, {}, static_cast<double>(workers.wanted));
  rows->Add(kShort, {}, static_cast<double>(workers.lacks_slot));
  const double age = AgeOfGauges(all);
  if (!std::isnan(age)) rows->Add(kAge, {}, age);
  rows->Add(kNotCounted, {}, metrics.not_counted);
  rows->Add(kSpansDropped, {}, metrics.spans_dropped);
}

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(list_metrics) {
  using namespace postbox;
  return Guarded([&] {
    Pg([&] { InitMaterializedSRF(fcinfo, 0); });
    MetricRows rows(reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo));
    rows.Add(kInfo, Labels().With("version", LibraryVersion()), 1.0);
    if (metrics_state() == nullptr) return Datum{0};
    const MeteredObjects all = ReadRegistry();
    const Workers workers = LookAtWorkers();
    if (!GaugesHold(workers, AgeOfGauges(all))) rows.HideGauges();
    AddObjects(all, workers, &rows);
    AddDatabase(all, workers, &rows);
    return Datum{0};
  });
}

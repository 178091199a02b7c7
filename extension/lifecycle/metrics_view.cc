// The samples of postbox.metrics: what shared memory counts for this database. No table is read, so
// the cost does not depend on any backlog.
//
// The view has a call of list_metrics() for each name of list_metric_names(). So the rows of a name
// that a query does not ask for are never made, and an exporter that asks for one name after
// another makes each row once.
//
// The tables below are the only list of metrics. docs/guides/metrics.md has the same
// (tests/tap/metrics.pl).
#include <cmath>

#include "extension/base/arguments.h"
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

// A sample of a metric: a histogram has three.
enum class SamplePart { kValue, kBucket, kSum, kCount };

constexpr std::pair<SamplePart, std::string_view> kHistogramParts[] = {
    {SamplePart::kBucket, "_bucket"}, {SamplePart::kSum, "_sum"}, {SamplePart::kCount, "_count"}};

// The result of a call: the rows of one sample name.
class MetricRows {
 public:
  // Without `gauges_hold` no gauge is known.
  MetricRows(ReturnSetInfo* result, SamplePart part, bool gauges_hold)
      : result_(result), part_(part), gauges_hold_(gauges_hold), scratch_(Pg([] {
          return AllocSetContextCreate(CurrentMemoryContext, "postbox metrics",
                                       ALLOCSET_SMALL_SIZES);
        })) {}

  void Add(const Labels& labels, double value) {
    const std::string json = labels.Json();
    Pg([&] {
      const MemoryContext before = MemoryContextSwitchTo(scratch_);
      Datum values[] = {DirectFunctionCall1(jsonb_in, CStringGetDatum(json.c_str())),
                        Float8GetDatum(value)};
      bool nulls[std::size(values)] = {};
      tuplestore_putvalues(result_->setResult, result_->setDesc, values, nulls);
      MemoryContextSwitchTo(before);
      MemoryContextReset(scratch_);
    });
  }
  // Nothing if it was not measured, or long ago.
  void Add(const Labels& labels, const Gauge& gauge) {
    const double value = Known(gauge);
    if (!std::isnan(value)) Add(labels, value);
  }
  double Known(const Gauge& gauge) const {
    return gauges_hold_ ? gauge.load() : std::numeric_limits<double>::quiet_NaN();
  }
  void Add(const Labels& labels, const Counter& counter) {
    Add(labels, static_cast<double>(Value(counter)));
  }
  void Add(const Labels& labels, const Histogram& histogram) {
    if (part_ == SamplePart::kSum) {
      Add(labels, static_cast<double>(Value(histogram.micros)) / 1e6);
      return;
    }
    uint64 count = 0;
    for (size_t i = 0; i < kBuckets; ++i) {
      count += Value(histogram.counts[i]);
      if (part_ == SamplePart::kBucket) {
        Add(labels.With("le", kBucketNames[i]), static_cast<double>(count));
      }
    }
    if (part_ == SamplePart::kCount) Add(labels, static_cast<double>(count));
  }

 private:
  ReturnSetInfo* const result_;
  const SamplePart part_;
  const bool gauges_hold_;
  const MemoryContext scratch_;  // of the call, for one row at a time
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

// What the whole database has.
struct MeteredDatabase {
  Workers workers;
  // How long ago a worker began to measure the gauges, in seconds; NaN: none has.
  double age = std::numeric_limits<double>::quiet_NaN();

  // Without a worker what was measured goes out of date. One that is started again soon makes no
  // gap.
  bool GaugesHold() const {
    return workers.running > 0 || (workers.wanted > 0 && age < kWorkerAway);
  }
};

struct Publication {
  std::string name, topic, credential;
  Oid outbox;
  size_t index;
  double standby_wait;

  const PublicationMetrics& data() const { return metrics_state()->publications.data[index]; }
  const PublishMeter& meter() const { return metrics_state()->meters[index]; }
  Labels labels() const { return Labels().With("publication", name); }
  Labels Messaging() const {
    return labels()
        .With("messaging_system", "gcp_pubsub")
        .With("messaging_destination_name", topic)
        .With("messaging_operation_name", "publish");
  }
};

// Of any other kind. `label` is the kind.
template <class Data>
struct Object {
  const char* label;
  std::string name;
  const Data* data;

  Labels labels() const { return Labels().With(label, name); }
};

using Outbox = Object<OutboxMetrics>;
using Inbox = Object<InboxMetrics>;
using Subscription = Object<SubscriptionMetrics>;
using Credential = Object<CredentialMetrics>;

template <class PoolType>
std::vector<Metered> ReadRegistry(const PoolType& pool) {
  LWLockAcquire(MetricsLock(), LW_SHARED);
  std::vector<Metered> found = FindMetered(pool);
  LWLockRelease(MetricsLock());
  return found;
}

std::vector<MeteredDatabase> Databases(const MeteredDatabase& database) { return {database}; }

std::vector<Publication> Publications(const MeteredDatabase& database) {
  const MetricsState& metrics = *metrics_state();
  std::vector<Publication> all;
  LWLockAcquire(MetricsLock(), LW_SHARED);
  for (const Metered& one : FindMetered(metrics.publications)) {
    const PublicationMetrics& data = metrics.publications.data[one.index];
    all.push_back({one.name, data.topic, data.credential, data.outbox, one.index, 0});
  }
  LWLockRelease(MetricsLock());
  for (Publication& one : all) one.standby_wait = database.workers.WaitOf(one.name);
  return all;
}

// Those with an OID. What was dropped, and is not forgotten yet, has no name.
template <class PoolType>
auto Relations(const char* label, const PoolType& pool) {
  std::vector<Object<std::remove_cvref_t<decltype(pool.data[0])>>> all;
  for (const Metered& one : ReadRegistry(pool)) {
    std::string name = RelationName(one.relation);
    if (!name.empty()) all.push_back({label, std::move(name), &pool.data[one.index]});
  }
  return all;
}

template <class PoolType>
auto Named(const char* label, const PoolType& pool) {
  std::vector<Object<std::remove_cvref_t<decltype(pool.data[0])>>> all;
  for (const Metered& one : ReadRegistry(pool)) {
    all.push_back({label, one.name, &pool.data[one.index]});
  }
  return all;
}

std::vector<Outbox> Outboxes(const MeteredDatabase&) {
  return Relations("outbox", metrics_state()->outboxes);
}
std::vector<Inbox> Inboxes(const MeteredDatabase&) {
  return Relations("inbox", metrics_state()->inboxes);
}
std::vector<Subscription> Subscriptions(const MeteredDatabase&) {
  return Named("subscription", metrics_state()->subscriptions);
}
std::vector<Credential> Credentials(const MeteredDatabase&) {
  return Named("credential", metrics_state()->credentials);
}

// A metric of each object of a kind, and what adds the rows of one object.
template <class Owner>
struct Metric {
  const char* name;
  const char* type;
  const char* unit;
  const char* help;
  void (*add)(const Owner&, MetricRows*);

  bool is_histogram() const { return std::string_view(type) == "histogram"; }
};

std::string_view CodeName(size_t code) { return pubsub::StatusCodeName(static_cast<int>(code)); }

uint64 CountOf(const Histogram& histogram) {
  uint64 count = 0;
  for (const Counter& one : histogram.counts) count += Value(one);
  return count;
}

// A code is shown as soon as it has occurred, OK always.
void AddOperations(const Publication& one, MetricRows* rows) {
  const Labels labels = one.Messaging();
  for (size_t code = 0; code < kStatusCodes; ++code) {
    const Histogram& histogram = one.meter().operations[code];
    if (code == 0) {
      rows->Add(labels, histogram);
    } else if (CountOf(histogram) > 0) {
      rows->Add(labels.With("error_type", CodeName(code)), histogram);
    }
  }
}

void AddCalls(const Publication& one, MetricRows* rows) {
  const Labels labels = one.labels()
                            .With("rpc_system", "grpc")
                            .With("rpc_method", "google.pubsub.v1.Publisher/Publish");
  for (size_t code = 0; code < kStatusCodes; ++code) {
    const Histogram& histogram = one.meter().calls[code];
    if (code > 0 && CountOf(histogram) == 0) continue;
    rows->Add(labels.With("rpc_response_status_code", CodeName(code)), histogram);
  }
}

void AddErrors(const Publication& one, MetricRows* rows) {
  for (size_t code = 1; code < kStatusCodes; ++code) {
    const uint64 errors = CountOf(one.meter().calls[code]);
    if (errors == 0) continue;
    rows->Add(one.labels().With("error_type", CodeName(code)), static_cast<double>(errors));
  }
}

void AddUses(const Publication& one, MetricRows* rows) {
  const std::string outbox = OidIsValid(one.outbox) ? RelationName(one.outbox) : "";
  if (outbox.empty()) return;
  rows->Add(one.labels().With("outbox", outbox).With("credential", one.credential), 1.0);
}

void AddState(const Publication& one, MetricRows* rows) {
  const double state = rows->Known(one.data().gauges[PublicationMetrics::kState]);
  for (size_t i = 0; i < kPublicationStates.size() && !std::isnan(state); ++i) {
    rows->Add(one.labels().With("state", kPublicationStates[i]),
              static_cast<double>(static_cast<size_t>(state) == i));
  }
}

void AddApplied(const Inbox& one, MetricRows* rows) {
  static constexpr const char* kOutcomeNames[kMetricOutcomes] = {"applied", "duplicate", "stale",
                                                                 "ignored", "rejected",  "parked"};
  for (size_t i = 0; i < kMetricOutcomes; ++i) {
    rows->Add(one.labels().With("outcome", kOutcomeNames[i]), one.data->applied[i]);
  }
}

template <size_t gauge>
void AddGauge(const Publication& one, MetricRows* rows) {
  rows->Add(one.labels(), one.data().gauges[gauge]);
}
template <class Data, size_t gauge>
void AddGaugeOf(const Object<Data>& one, MetricRows* rows) {
  rows->Add(one.labels(), one.data->gauges[gauge]);
}

constexpr Metric<Publication> kOfPublications[] = {
    {"messaging_client_sent_messages_total", "counter", "messages",
     "Attempts to send a message to Pub/Sub; one that is sent again counts again",
     [](const Publication& one, MetricRows* rows) {
       rows->Add(one.Messaging(), one.meter().sent);
     }},
    {"messaging_client_operation_duration_seconds", "histogram", "seconds",
     "How long publishing a batch took, from its first request to its "
     "last answer, retries included",
     AddOperations},
    {"rpc_client_call_duration_seconds", "histogram", "seconds",
     "How long a request to Pub/Sub took", AddCalls},
    {"postbox_published_events_total", "counter", "events", "Events that Pub/Sub has accepted",
     [](const Publication& one, MetricRows* rows) {
       rows->Add(one.labels(), one.meter().published);
     }},
    {"postbox_publish_errors_total", "counter", "requests", "Requests to publish that failed",
     AddErrors},
    {"postbox_publish_latency_seconds", "histogram", "seconds",
     "From occurred_at of an event to its confirmation by Pub/Sub",
     [](const Publication& one, MetricRows* rows) { rows->Add(one.labels(), one.data().latency); }},
    {"postbox_pending_events_estimate", "gauge", "events",
     "Events that are ready and wait to be published; exact up to 1000, an estimate above",
     AddGauge<PublicationMetrics::kPending>},
    {"postbox_oldest_pending_age_seconds", "gauge", "seconds",
     "Age of the oldest event that is ready to be published; 0 if none waits",
     AddGauge<PublicationMetrics::kOldest>},
    {"postbox_parked_events", "gauge", "events",
     "Events that are parked, or wait behind a parked event of their key",
     AddGauge<PublicationMetrics::kParked>},
    {"postbox_parked_keys", "gauge", "keys", "Keys of the first 10000 parked events",
     AddGauge<PublicationMetrics::kParkedKeys>},
    {"postbox_max_delivery_attempts", "gauge", "attempts",
     "The most failed attempts that one of the first 10000 parked events has had",
     AddGauge<PublicationMetrics::kAttempts>},
    {"postbox_publication_state", "gauge", "",
     "1 for the state that publication_status shows, 0 for the others", AddState},
    {"postbox_publication_info", "gauge", "",
     "1; the labels are the outbox and the credential of the publication", AddUses},
    {"postbox_standby_wait_seconds", "gauge", "seconds",
     "How long events have been held for a synchronous standby; 0 if none",
     [](const Publication& one, MetricRows* rows) { rows->Add(one.labels(), one.standby_wait); }},
};

constexpr Metric<Outbox> kOfOutboxes[] = {
    {"postbox_emitted_events_total", "counter", "events",
     "Events that committed transactions have emitted",
     [](const Outbox& one, MetricRows* rows) { rows->Add(one.labels(), one.data->emitted); }},
    {"postbox_outbox_retention_behind_seconds", "gauge", "seconds",
     "How long events have been kept beyond the retention of the outbox; 0 if none",
     AddGaugeOf<OutboxMetrics, OutboxMetrics::kRetentionBehind>},
};

constexpr Metric<Inbox> kOfInboxes[] = {
    {"postbox_applied_events_total", "counter", "events",
     "Events that committed transactions have applied, by outcome", AddApplied},
    {"postbox_apply_duration_seconds", "histogram", "seconds",
     "How long a call of inbox_apply or inbox_apply_batch took",
     [](const Inbox& one, MetricRows* rows) { rows->Add(one.labels(), one.data->durations); }},
    {"postbox_dead_letters_at_least", "gauge", "events",
     "Dead letters that are not parked, among the first 10000 rows",
     AddGaugeOf<InboxMetrics, InboxMetrics::kDeadLetters>},
    {"postbox_inbox_parked_keys_at_least", "gauge", "keys",
     "Parked keys of the inbox, counted up to 10000",
     AddGaugeOf<InboxMetrics, InboxMetrics::kParkedKeys>},
    {"postbox_inbox_retention_behind_seconds", "gauge", "seconds",
     "How long the inbox has been due for a new generation; 0 if it is not",
     AddGaugeOf<InboxMetrics, InboxMetrics::kRetentionBehind>},
};

constexpr Metric<Subscription> kOfSubscriptions[] = {
    {"postbox_subscription_pullers", "gauge", "processes",
     "Pullers of the subscription that have reported within a minute",
     AddGaugeOf<SubscriptionMetrics, SubscriptionMetrics::kPullers>},
    {"postbox_subscription_paused", "gauge", "", "1 if the subscription is paused, 0 if it is not",
     AddGaugeOf<SubscriptionMetrics, SubscriptionMetrics::kPaused>},
};

constexpr Metric<Credential> kOfCredentials[] = {
    {"postbox_credential_expires_timestamp_seconds", "gauge", "seconds",
     "When the current token of the credential expires, in Unix time",
     AddGaugeOf<CredentialMetrics, CredentialMetrics::kExpires>},
};

constexpr Metric<MeteredDatabase> kOfDatabase[] = {
    {"postbox_workers_running", "gauge", "processes", "Publisher workers of the database that run",
     [](const MeteredDatabase& one, MetricRows* rows) {
       rows->Add({}, static_cast<double>(one.workers.running));
     }},
    {"postbox_workers_wanted", "gauge", "processes",
     "Publisher workers that the database is to have",
     [](const MeteredDatabase& one, MetricRows* rows) {
       rows->Add({}, static_cast<double>(one.workers.wanted));
     }},
    {"postbox_workers_short", "gauge", "",
     "1 if a worker is missing for lack of a slot, 0 if none is",
     [](const MeteredDatabase& one, MetricRows* rows) {
       rows->Add({}, static_cast<double>(one.workers.lacks_slot));
     }},
    {"postbox_metrics_gauges_age_seconds", "gauge", "seconds",
     "How long ago a worker began to measure the gauges of the database",
     [](const MeteredDatabase& one, MetricRows* rows) {
       if (!std::isnan(one.age)) rows->Add({}, one.age);
     }},
    {"postbox_metrics_not_counted_total", "counter", "",
     "How often something was not counted, in any database, because the registry was full",
     [](const MeteredDatabase&, MetricRows* rows) { rows->Add({}, metrics_state()->not_counted); }},
    {"postbox_trace_spans_dropped_total", "counter", "spans",
     "Spans of publisher workers, in any database, that no collector has taken",
     [](const MeteredDatabase&, MetricRows* rows) {
       rows->Add({}, metrics_state()->spans_dropped);
     }},
};

// The only one that is there without shared memory.
constexpr Metric<std::string> kOfLibrary[] = {
    {"postbox_info", "gauge", "", "1; the label is the version of the library",
     [](const std::string& version, MetricRows* rows) {
       rows->Add(Labels().With("version", version), 1.0);
     }},
};

std::vector<std::string> Library(const MeteredDatabase&) { return {LibraryVersion()}; }

// Calls `use(metrics, objects)` with each table, and with what finds the objects that it is about.
template <class Use>
void ForEachTable(const Use& use) {
  use(kOfLibrary, Library);
  if (metrics_state() == nullptr) return;
  use(kOfPublications, Publications);
  use(kOfOutboxes, Outboxes);
  use(kOfInboxes, Inboxes);
  use(kOfSubscriptions, Subscriptions);
  use(kOfCredentials, Credentials);
  use(kOfDatabase, Databases);
}

// Nothing if the sample is of another metric.
template <class Owner>
std::optional<SamplePart> PartOf(const Metric<Owner>& metric, std::string_view sample) {
  if (!metric.is_histogram()) {
    return sample == metric.name ? std::optional(SamplePart::kValue) : std::nullopt;
  }
  const size_t size = std::string_view(metric.name).size();
  for (const auto& [part, suffix] : kHistogramParts) {
    if (sample.starts_with(metric.name) && sample.substr(size) == suffix) return part;
  }
  return std::nullopt;
}

MeteredDatabase LookAtDatabase() {
  MeteredDatabase database;
  if (metrics_state() == nullptr) return database;
  database.workers = LookAtWorkers();
  const auto& pool = metrics_state()->databases;
  for (const Metered& one : ReadRegistry(pool)) {
    const double at = pool.data[one.index].gauges[DatabaseMetrics::kMeasuredAt];
    database.age = std::max(static_cast<double>(GetCurrentTimestamp()) - at, 0.0) / USECS_PER_SEC;
  }
  return database;
}

// One row of list_metric_names().
template <class Owner>
void AddName(const Metric<Owner>& metric, std::string_view suffix, ReturnSetInfo* result) {
  const std::string name = std::string(metric.name).append(suffix);
  Pg([&] {
    Datum values[] = {CStringGetTextDatum(name.c_str()), CStringGetTextDatum(metric.type),
                      CStringGetTextDatum(metric.help), CStringGetTextDatum(metric.unit)};
    bool nulls[std::size(values)] = {};
    tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
  });
}

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(list_metric_names) {
  using namespace postbox;
  return Guarded([&] {
    Pg([&] { InitMaterializedSRF(fcinfo, 0); });
    auto* const result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
    ForEachTable([&](const auto& metrics, const auto&) {
      for (const auto& metric : metrics) {
        if (!metric.is_histogram()) {
          AddName(metric, "", result);
          continue;
        }
        for (const auto& [part, suffix] : kHistogramParts) AddName(metric, suffix, result);
      }
    });
    return Datum{0};
  });
}

POSTBOX_FUNCTION(list_metrics) {
  using namespace postbox;
  return Guarded([&] {
    const std::string sample = TextArgument(fcinfo, 0, "name");
    Pg([&] { InitMaterializedSRF(fcinfo, 0); });
    auto* const result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
    const MeteredDatabase database = LookAtDatabase();
    ForEachTable([&](const auto& metrics, const auto& objects) {
      for (const auto& metric : metrics) {
        const std::optional<SamplePart> part = PartOf(metric, sample);
        if (!part) continue;
        MetricRows rows(result, *part, database.GaugesHold());
        for (const auto& object : objects(database)) metric.add(object, &rows);
      }
    });
    return Datum{0};
  });
}

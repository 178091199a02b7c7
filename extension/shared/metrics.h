// The registry of what is counted: counters, histograms and gauges in shared memory, which outlast
// the workers. postbox.metrics reads it, and no table.
//
// There is a fixed number of entries for each kind of object. An entry belongs to an object of a
// database, an outbox or an inbox by its OID, everything else by its name. A server of which more
// objects are in use counts how often it had no entry (`not_counted`), and goes on.
//
//   who               counts what                  how the entry is found
//   a session, at its commit: emitted, applied     by OID, then by its place (`MetricKey::owner`)
//   a worker          published, durations         by name, then by its place
//   a worker          gauges                       each time
//
// Rule: no number of one object is added to another one's.
//  - An entry changes hands under MetricsLock() only. It is zeroed then, before it has its owner.
//  - A session adds while it still has its lock on the outbox or inbox (callbacks of a commit run
//    before locks are released). A session that drops it has the lock after that, and frees the
//    entry at its own commit. So the entry is still that of the outbox or inbox.
//  - A worker looks before each claim whether the place is still the publication's. What it has on
//    its way when that is dropped has its results soon after. So an entry that is free rests for
//    kMetricRest before another object has it; what is added meanwhile is not shown, and is zeroed.
//
// How large it is: kMax... entries of each kind. A publication takes 5.4 kB (two histograms for
// each of 17 status codes are most of that), the others under 0.5 kB: 2 MB in all.
//
// After a crash of a server process the postmaster makes new memory, and everything begins at 0.
// This file is compiled into both modules, as shared_state.h is.
#ifndef POSTBOX_EXTENSION_SHARED_METRICS_H_
#define POSTBOX_EXTENSION_SHARED_METRICS_H_

#include "extension/base/postgres.h"
#include "extension/rules/publish_meter.h"

namespace postbox {

// Raise it with every change of MetricsState (shared_state.h tells why).
inline constexpr uint32 kMetricsLayout = 2;

inline constexpr size_t kMaxMetricPublications = 256;
inline constexpr size_t kMaxMetricOutboxes = 512;
inline constexpr size_t kMaxMetricInboxes = 512;
inline constexpr size_t kMaxMetricSubscriptions = 512;
inline constexpr size_t kMaxMetricCredentials = 256;
inline constexpr size_t kMaxMetricDatabases = 256;
inline constexpr uint64 kMetricRest = 600'000;  // milliseconds; longer than any publish_timeout

// How an event that was applied ended; as postbox.outcome.
inline constexpr size_t kMetricOutcomes = 6;

// A gauge that no worker has measured is NaN: nothing is shown.
using Gauge = std::atomic<double>;
static_assert(Gauge::is_always_lock_free, "processes share it");

// The states of postbox.publication_status.
inline constexpr std::array<const char*, 7> kPublicationStates = {
    "active", "waiting", "retrying", "suspended", "unserved", "paused", "broken"};

struct MetricKey {
  // 0: free. The database in the upper half; in the lower one the OID of the object, or if it has a
  // name, a number that no other one had recently.
  std::atomic<uint64> owner;
  uint64 free_since;  // MonotonicMilliseconds(); 0: it was never used
  char name[NAMEDATALEN];
};

struct PublicationMetrics {
  static constexpr size_t kGauges = 6;
  enum : size_t { kPending, kOldest, kParked, kParkedKeys, kAttempts, kState };
  Histogram latency;
  std::array<Gauge, kGauges> gauges;
  // Under the lock.
  char topic[256];  // the id, without the project
  char credential[NAMEDATALEN];
  Oid outbox;  // not valid: this and the credential are not known
};

struct OutboxMetrics {
  static constexpr size_t kGauges = 1;
  enum : size_t { kRetentionBehind };
  Counter emitted;
  std::array<Gauge, kGauges> gauges;
};

struct InboxMetrics {
  static constexpr size_t kGauges = 3;
  enum : size_t { kDeadLetters, kParkedKeys, kRetentionBehind };
  std::array<Counter, kMetricOutcomes> applied;
  Histogram durations;
  std::array<Gauge, kGauges> gauges;
};

struct SubscriptionMetrics {
  static constexpr size_t kGauges = 2;
  enum : size_t { kPullers, kPaused };
  std::array<Gauge, kGauges> gauges;
};

struct CredentialMetrics {
  static constexpr size_t kGauges = 1;
  enum : size_t { kExpires };
  std::array<Gauge, kGauges> gauges;
};

// One for each database whose workers measure gauges.
struct DatabaseMetrics {
  static constexpr size_t kGauges = 1;
  enum : size_t { kMeasuredAt };  // a TimestampTz
  std::array<Gauge, kGauges> gauges;
};

template <class Data, size_t size>
struct MetricPool {
  static constexpr size_t kSize = size;
  MetricKey keys[size];
  Data data[size];
};

struct MetricsState {
  uint32 layout;       // kMetricsLayout
  uint32 last_number;  // of an object with a name; under the lock
  Counter not_counted;
  Counter spans_dropped;  // of the traces of workers
  MetricPool<PublicationMetrics, kMaxMetricPublications> publications;
  PublishMeter meters[kMaxMetricPublications];  // of the publication in the same place
  MetricPool<OutboxMetrics, kMaxMetricOutboxes> outboxes;
  MetricPool<InboxMetrics, kMaxMetricInboxes> inboxes;
  MetricPool<SubscriptionMetrics, kMaxMetricSubscriptions> subscriptions;
  MetricPool<CredentialMetrics, kMaxMetricCredentials> credentials;
  MetricPool<DatabaseMetrics, kMaxMetricDatabases> databases;
};

// nullptr without a preloaded library.
MetricsState* metrics_state();
LWLock* MetricsLock();

// For shared_state.cc.
size_t MetricsSize();
void CreateOrFindMetrics();
// Whether the memory is of this release.
bool MetricsFit();

enum class MetricKind { kPublication, kOutbox, kInbox, kSubscription, kCredential, kDatabase };

struct MetricPlace {
  size_t index;
  uint64 owner = 0;  // as MetricKey::owner was
};

// The place of an object of this database, which is made if there is none. By the OID, or if that
// is invalid, by the name. Nothing if the registry is full, which is counted. Takes the lock,
// raises no error: safe in a commit callback.
std::optional<MetricPlace> FindMetrics(MetricKind kind, Oid relation, std::string_view name = {});
// Whether it is still the place of the same object. Takes no lock.
bool IsPlace(MetricKind kind, const MetricPlace& place);

// The id of the topic of a publication, of the full name or of the id.
void SetMetricTopic(const MetricPlace& place, std::string_view topic);
// What else a publication uses; the credential is empty if it has none.
void SetMetricUses(const MetricPlace& place, Oid outbox, std::string_view credential);

// The object is gone.
void ForgetMetrics(MetricKind kind, Oid relation, std::string_view name = {});
// What this database has of a kind.
std::vector<MetricPlace> MetricPlaces(MetricKind kind);
// Forgets those of `places` that are not in `kept`, unless another object has them by now.
void KeepMetrics(MetricKind kind, const std::vector<MetricPlace>& places,
                 const std::set<size_t>& kept);
// Everything of databases for which this is true.
void ForgetMetricsOf(const std::function<bool(Oid)>& database_is_gone);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_SHARED_METRICS_H_

#include "extension/shared/metrics.h"

#include "extension/shared/shared_state.h"

namespace postbox {
namespace {

constexpr char kMetricsName[] = "postbox metrics";

MetricsState* metrics = nullptr;

// The keys of a kind, and how the data in a place is made that of another object.
struct Pool {
  std::span<MetricKey> keys;
  void (*clear)(size_t place);
};

template <class Data, size_t size>
void ClearData(MetricPool<Data, size>* pool, size_t place) {
  std::memset(static_cast<void*>(&pool->data[place]), 0, sizeof(Data));
  for (Gauge& gauge : pool->data[place].gauges) gauge = std::numeric_limits<double>::quiet_NaN();
}

Pool PoolOf(MetricKind kind) {
  switch (kind) {
    case MetricKind::kPublication:
      return {metrics->publications.keys, [](size_t place) {
                ClearData(&metrics->publications, place);
                std::memset(static_cast<void*>(&metrics->meters[place]), 0, sizeof(PublishMeter));
              }};
    case MetricKind::kOutbox:
      return {metrics->outboxes.keys, [](size_t place) { ClearData(&metrics->outboxes, place); }};
    case MetricKind::kInbox:
      return {metrics->inboxes.keys, [](size_t place) { ClearData(&metrics->inboxes, place); }};
    case MetricKind::kSubscription:
      return {metrics->subscriptions.keys,
              [](size_t place) { ClearData(&metrics->subscriptions, place); }};
    case MetricKind::kCredential:
      return {metrics->credentials.keys,
              [](size_t place) { ClearData(&metrics->credentials, place); }};
    case MetricKind::kDatabase:
      break;
  }
  return {metrics->databases.keys, [](size_t place) { ClearData(&metrics->databases, place); }};
}

constexpr std::array kMetricKinds = {MetricKind::kPublication, MetricKind::kOutbox,
                                     MetricKind::kInbox,       MetricKind::kSubscription,
                                     MetricKind::kCredential,  MetricKind::kDatabase};

template <size_t size>
void SetText(char (&known)[size], std::string_view text) {
  known[text.copy(known, size - 1)] = '\0';
}

uint64 OwnerOf(uint32 number) { return static_cast<uint64>(MyDatabaseId) << 32 | number; }
Oid DatabaseOf(uint64 owner) { return static_cast<Oid>(owner >> 32); }

// An object of this database. What has an OID has no name.
bool HasKey(const MetricKey& key, Oid relation, std::string_view name) {
  if (OidIsValid(relation)) return key.owner == OwnerOf(relation);
  return DatabaseOf(key.owner) == MyDatabaseId && name == key.name;
}

// Of an object with a name.
uint32 NextNumber() {
  if (++metrics->last_number == 0) ++metrics->last_number;
  return metrics->last_number;
}

void FreeKey(MetricKey* key) {
  key->owner = 0;
  key->free_since = MonotonicMilliseconds();
}

// The one that has rested longest. Nothing if none has rested enough.
std::optional<size_t> FreePlace(std::span<const MetricKey> keys) {
  const uint64 now = MonotonicMilliseconds();
  std::optional<size_t> found;
  for (size_t i = 0; i < keys.size(); ++i) {
    const uint64 since = keys[i].free_since;
    if (keys[i].owner != 0 || (since != 0 && since + kMetricRest > now)) continue;
    if (!found || since < keys[*found].free_since) found = i;
    if (since == 0) break;
  }
  return found;
}

}  // namespace

MetricsState* metrics_state() { return metrics; }

LWLock* MetricsLock() {
  static LWLock* lock = nullptr;
  if (lock == nullptr) lock = &GetNamedLWLockTranche("postbox")[1].lock;
  return lock;
}

size_t MetricsSize() { return MAXALIGN(sizeof(MetricsState)); }

void CreateOrFindMetrics() {
  metrics = nullptr;
  bool found = false;
  void* memory = ShmemInitStruct(kMetricsName, sizeof(MetricsState), &found);
  metrics = static_cast<MetricsState*>(memory);
  if (found) return;
  std::memset(memory, 0, sizeof(MetricsState));
  metrics->layout = kMetricsLayout;
}

bool MetricsFit() { return metrics != nullptr && metrics->layout == kMetricsLayout; }

std::optional<MetricPlace> FindMetrics(MetricKind kind, Oid relation, std::string_view name) {
  if (metrics == nullptr) return std::nullopt;
  const Pool pool = PoolOf(kind);
  name = name.substr(0, NAMEDATALEN - 1);
  std::optional<MetricPlace> place;
  LWLockAcquire(MetricsLock(), LW_EXCLUSIVE);
  for (size_t i = 0; i < pool.keys.size() && !place; ++i) {
    if (HasKey(pool.keys[i], relation, name)) place = {i, pool.keys[i].owner};
  }
  const std::optional<size_t> free = place ? std::nullopt : FreePlace(pool.keys);
  if (free) {
    MetricKey& key = pool.keys[*free];
    pool.clear(*free);
    std::memset(key.name, 0, sizeof key.name);
    std::memcpy(key.name, name.data(), name.size());
    place = {*free, OwnerOf(OidIsValid(relation) ? relation : NextNumber())};
    key.owner = place->owner;
  } else if (!place) {
    Add(&metrics->not_counted, 1);
  }
  LWLockRelease(MetricsLock());
  return place;
}

bool IsPlace(MetricKind kind, const MetricPlace& place) {
  return PoolOf(kind).keys[place.index].owner == place.owner;
}

void SetMetricTopic(const MetricPlace& place, std::string_view topic) {
  topic.remove_prefix(topic.rfind('/') + 1);
  LWLockAcquire(MetricsLock(), LW_EXCLUSIVE);
  if (IsPlace(MetricKind::kPublication, place)) {
    SetText(metrics->publications.data[place.index].topic, topic);
  }
  LWLockRelease(MetricsLock());
}

void SetMetricUses(const MetricPlace& place, Oid outbox, std::string_view credential) {
  LWLockAcquire(MetricsLock(), LW_EXCLUSIVE);
  if (IsPlace(MetricKind::kPublication, place)) {
    PublicationMetrics& data = metrics->publications.data[place.index];
    SetText(data.credential, credential);
    data.outbox = outbox;
  }
  LWLockRelease(MetricsLock());
}

void ForgetMetrics(MetricKind kind, Oid relation, std::string_view name) {
  if (metrics == nullptr) return;
  LWLockAcquire(MetricsLock(), LW_EXCLUSIVE);
  for (MetricKey& key : PoolOf(kind).keys) {
    if (HasKey(key, relation, name)) FreeKey(&key);
  }
  LWLockRelease(MetricsLock());
}

std::vector<MetricPlace> MetricPlaces(MetricKind kind) {
  std::vector<MetricPlace> places;
  if (metrics == nullptr) return places;
  const std::span<const MetricKey> keys = PoolOf(kind).keys;
  for (size_t i = 0; i < keys.size(); ++i) {
    const uint64 owner = keys[i].owner;
    if (DatabaseOf(owner) == MyDatabaseId) places.push_back({i, owner});
  }
  return places;
}

void KeepMetrics(MetricKind kind, const std::vector<MetricPlace>& places,
                 const std::set<size_t>& kept) {
  if (metrics == nullptr) return;
  LWLockAcquire(MetricsLock(), LW_EXCLUSIVE);
  for (const MetricPlace& place : places) {
    if (IsPlace(kind, place) && !kept.contains(place.index)) {
      FreeKey(&PoolOf(kind).keys[place.index]);
    }
  }
  LWLockRelease(MetricsLock());
}

void ForgetMetricsOf(const std::function<bool(Oid)>& database_is_gone) {
  if (metrics == nullptr) return;
  LWLockAcquire(MetricsLock(), LW_EXCLUSIVE);
  for (const MetricKind kind : kMetricKinds) {
    for (MetricKey& key : PoolOf(kind).keys) {
      if (key.owner != 0 && database_is_gone(DatabaseOf(key.owner))) FreeKey(&key);
    }
  }
  LWLockRelease(MetricsLock());
}

}  // namespace postbox

#include "extension/lifecycle/commit_counts.h"

#include "extension/base/guard.h"
#include "extension/shared/shared_state.h"

extern "C" {
#include <commands/trigger.h>
}

namespace postbox {
namespace {

// The numbers of the subtransactions of one level for one outbox. The vector below has them in the
// order of their levels: what a subtransaction has done is at its end.
struct EmittedCount {
  int level;
  Oid relation;
  uint64 events;

  bool IsOf(const EmittedCount& other) const { return relation == other.relation; }
  void Add(const EmittedCount& other) { events += other.events; }
};

struct AppliedCount {
  int level;
  Oid relation;
  OutcomeCounts outcomes;
  Durations durations;

  bool IsOf(const AppliedCount& other) const { return relation == other.relation; }
  void Add(const AppliedCount& other) {
    for (size_t i = 0; i < outcomes.size(); ++i) outcomes[i] += other.outcomes[i];
    durations.Add(other.durations);
  }
};

// Of kDatabase: everything that the database has.
struct DroppedObject {
  int level;
  MetricKind kind;
  Oid relation;
  char name[NAMEDATALEN];

  // Each stands for itself.
  static bool IsOf(const DroppedObject& /*other*/) { return false; }
  static void Add(const DroppedObject& /*other*/) {}
};

template <class Count>
class Collected {
 public:
  bool empty() const { return counts_.empty(); }
  auto begin() const { return counts_.begin(); }
  auto end() const { return counts_.end(); }
  void Clear() { counts_.clear(); }

  // What is known of the current level, or a new one.
  Count& Of(Oid relation) {
    const int level = GetCurrentTransactionNestLevel();
    for (auto at = counts_.rbegin(); at != counts_.rend() && at->level == level; ++at) {
      if (at->relation == relation) return *at;
    }
    Count& made = counts_.emplace_back();
    made.level = level;
    made.relation = relation;
    return made;
  }
  void Add(const Count& count) { counts_.push_back(count); }

  void Abort(int level) {
    while (!counts_.empty() && counts_.back().level >= level) counts_.pop_back();
  }

  // A subtransaction becomes part of the one around it.
  void Commit(int level) {
    const auto first = std::find_if(counts_.begin(), counts_.end(),
                                    [level](const Count& count) { return count.level >= level; });
    auto last = first;
    for (auto at = first; at != counts_.end(); ++at) {
      Count count = *at;
      count.level = level - 1;
      const auto known = std::find_if(counts_.begin(), last, [&](const Count& other) {
        return other.level == count.level && other.IsOf(count);
      });
      if (known != last) {
        known->Add(count);
      } else {
        *last++ = count;
      }
    }
    counts_.erase(last, counts_.end());
  }

 private:
  std::vector<Count> counts_;
};

// Never destroyed: callbacks run until the process is gone.
Collected<EmittedCount>& emitted = *new Collected<EmittedCount>;
Collected<AppliedCount>& applied = *new Collected<AppliedCount>;
Collected<DroppedObject>& dropped = *new Collected<DroppedObject>;

// The places that this backend has found last. If the registry is full, it is asked again after a
// second.
class KnownPlaces {
 public:
  explicit KnownPlaces(MetricKind kind) : kind_(kind) {}

  std::optional<size_t> Find(Oid relation) {
    Known& known = known_[relation % known_.size()];
    if (known.relation == relation && IsPlace(kind_, known.place)) return known.place.index;
    const uint64 now = MonotonicMilliseconds();
    if (now < ask_again_at_) {
      postbox::Add(&metrics_state()->not_counted, 1);
      return std::nullopt;
    }
    const std::optional<MetricPlace> place = FindMetrics(kind_, relation);
    if (!place) {
      ask_again_at_ = now + kFullMs;
      return std::nullopt;
    }
    known = {relation, *place};
    return place->index;
  }

 private:
  static constexpr uint64 kFullMs = 1000;
  struct Known {
    Oid relation = InvalidOid;
    MetricPlace place{};
  };

  const MetricKind kind_;
  std::array<Known, 64> known_{};
  uint64 ask_again_at_ = 0;
};

void CommitCounts() {
  static KnownPlaces outboxes(MetricKind::kOutbox), inboxes(MetricKind::kInbox);
  MetricsState* metrics = metrics_state();
  for (const EmittedCount& count : emitted) {
    if (const auto place = outboxes.Find(count.relation)) {
      Add(&metrics->outboxes.data[*place].emitted, count.events);
    }
  }
  for (const AppliedCount& count : applied) {
    const auto place = inboxes.Find(count.relation);
    if (!place) continue;
    InboxMetrics& inbox = metrics->inboxes.data[*place];
    for (size_t i = 0; i < kMetricOutcomes; ++i) {
      if (count.outcomes[i] > 0) Add(&inbox.applied[i], count.outcomes[i]);
    }
    inbox.durations.Add(count.durations);
  }
  for (const DroppedObject& one : dropped) {
    if (one.kind == MetricKind::kDatabase) {
      ForgetMetricsOf([](Oid database) { return database == MyDatabaseId; });
    } else {
      ForgetMetrics(one.kind, one.relation, one.name);
    }
  }
}

void ClearCounts() {
  emitted.Clear();
  applied.Clear();
  dropped.Clear();
}

void CountAtTransactionEnd(XactEvent event, void* /*argument*/) {
  if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE) {
    return;
  }
  if (emitted.empty() && applied.empty() && dropped.empty()) return;
  if (event == XACT_EVENT_COMMIT) CommitCounts();
  ClearCounts();
}

void CountAtSubtransactionEnd(SubXactEvent event, SubTransactionId /*id*/,
                              SubTransactionId /*parent*/, void* /*argument*/) {
  if (event != SUBXACT_EVENT_ABORT_SUB && event != SUBXACT_EVENT_COMMIT_SUB) return;
  const int level = GetCurrentTransactionNestLevel();
  if (event == SUBXACT_EVENT_ABORT_SUB) {
    emitted.Abort(level);
    applied.Abort(level);
    dropped.Abort(level);
  } else {
    emitted.Commit(level);
    applied.Commit(level);
    dropped.Commit(level);
  }
}

// Whether numbers can be kept.
bool Counts() {
  if (metrics_state() == nullptr) return false;
  static bool registered = false;
  if (registered) return true;
  Pg([] {
    RegisterXactCallback(CountAtTransactionEnd, nullptr);
    RegisterSubXactCallback(CountAtSubtransactionEnd, nullptr);
  });
  registered = true;
  return true;
}

void ForgetAtCommit(MetricKind kind, Oid relation, std::string_view name) {
  DroppedObject one{GetCurrentTransactionNestLevel(), kind, relation, {}};
  name.copy(one.name, NAMEDATALEN - 1);
  dropped.Add(one);
}

}  // namespace

void CountEmittedAtCommit(Oid outbox, uint64 events) {
  if (!Counts()) return;
  emitted.Of(outbox).events += events;
}

OutcomeCounts* CountApplyAtCommit(Oid inbox, int64 micros) {
  if (!Counts()) return nullptr;
  AppliedCount& count = applied.Of(inbox);
  count.durations.Observe(micros);
  return &count.outcomes;
}

void ForgetDatabaseAtCommit() {
  if (Counts()) ForgetAtCommit(MetricKind::kDatabase, InvalidOid, {});
}

void ForgetDeletedAtCommit(const TriggerData& trigger) {
  if (!TRIGGER_FIRED_BY_DELETE(trigger.tg_event) || !Counts()) return;
  static constexpr struct {
    std::string_view table;
    MetricKind kind;
  } kKinds[] = {{"publication", MetricKind::kPublication},
                {"outbox", MetricKind::kOutbox},
                {"inbox", MetricKind::kInbox},
                {"credential", MetricKind::kCredential}};
  const std::string_view table = RelationGetRelationName(trigger.tg_relation);
  for (const auto& one : kKinds) {
    if (one.table != table) continue;
    // The first column is the key.
    bool null = false;
    const TupleDesc columns = RelationGetDescr(trigger.tg_relation);
    const Oid type = TupleDescAttr(columns, 0)->atttypid;
    const Datum key = Pg([&] { return heap_getattr(trigger.tg_trigtuple, 1, columns, &null); });
    if (!null && type == REGCLASSOID) ForgetAtCommit(one.kind, DatumGetObjectId(key), {});
    if (!null && type == TEXTOID) {
      ForgetAtCommit(one.kind, InvalidOid, Pg([&] { return TextDatumGetCString(key); }));
    }
  }
}

}  // namespace postbox

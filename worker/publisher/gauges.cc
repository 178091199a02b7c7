#include "worker/publisher/gauges.h"

#include <cmath>

#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "extension/shared/time_scale.h"
#include "extension/trust/act_as.h"
#include "worker/publisher/base/limited_log.h"
#include "worker/publisher/base/passing_error.h"
#include "worker/publisher/base/registration.h"
#include "worker/publisher/base/transaction.h"

namespace postbox::publisher {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kRound = std::chrono::seconds(10);
constexpr int64 kPauseFactor = 100;
// A step that has taken so long measures nothing more.
constexpr milliseconds kStepTime(5);
// A step need not wake a worker up that polls soon.
constexpr milliseconds kLate(1500);
// One object may take so long.
constexpr milliseconds kObjectTime = std::chrono::seconds(1);
// After what took longer, the clock was set or the machine stood still.
constexpr milliseconds kLongestPause = 2 * kPauseFactor * kObjectTime;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

double NumberColumn(uint64 row, int column) {
  if (IsNull(row, column)) return kUnknown;
  RequireColumnType(column, FLOAT8OID);
  return DatumGetFloat8(DatumColumn(row, column));
}

template <size_t size>
void Set(std::array<Gauge, size>* gauges, const std::array<double, size>& values) {
  for (size_t i = 0; i < size; ++i) (*gauges)[i] = values[i];
}

// What the registry has of the database, and which of it there is.
class Objects {
 public:
  std::optional<MetricPlace> Find(MetricKind kind, Oid relation, const std::string& name) {
    const auto place = Pg([&] { return FindMetrics(kind, relation, name); });
    if (place) Of(kind).there.insert(place->index);
    return place;
  }

  // The others are gone. They were there before the tables were read, so none is too new for that.
  void ForgetOthers() const {
    for (const Known& one : known_) {
      Pg([&] { KeepMetrics(one.kind, one.places, one.there); });
    }
  }

 private:
  struct Known {
    explicit Known(MetricKind of) : kind(of), places(MetricPlaces(of)) {}
    MetricKind kind;
    std::vector<MetricPlace> places;
    std::set<size_t> there;
  };

  Known& Of(MetricKind kind) {
    return *std::find_if(known_.begin(), known_.end(),
                         [kind](const Known& one) { return one.kind == kind; });
  }

  std::array<Known, 5> known_ = {Known(MetricKind::kPublication), Known(MetricKind::kOutbox),
                                 Known(MetricKind::kInbox), Known(MetricKind::kSubscription),
                                 Known(MetricKind::kCredential)};
};

double StateNumber(const std::string& state) {
  for (size_t i = 0; i < kPublicationStates.size(); ++i) {
    if (state == kPublicationStates[i]) return static_cast<double>(i);
  }
  return kUnknown;
}

std::array<double, PublicationMetrics::kGauges> ReadPublication(const std::string& name, Oid outbox,
                                                                const MetricPlace& place) {
  using P = PublicationMetrics;
  std::array<double, P::kGauges> values;
  values.fill(kUnknown);
  Parameters publication;
  publication.AddText(name);
  if (Run("SELECT state, ready::double precision, parked::double precision, oldest_ready, topic, "
          "credential FROM postbox.publication_gauges($1)",
          publication) == 0 ||
      IsNull(0, 1)) {
    return values;
  }
  values[P::kState] = StateNumber(TextColumn(0, 1));
  values[P::kPending] = NumberColumn(0, 2);
  values[P::kParked] = NumberColumn(0, 3);
  values[P::kOldest] = NumberColumn(0, 4);
  const std::string topic = TextColumn(0, 5);
  const std::string credential = TextColumn(0, 6);
  Pg([&] {
    SetMetricTopic(place, topic);
    SetMetricUses(place, outbox, credential);
  });
  if (std::isnan(values[P::kParked])) return values;
  const ActAs owner(RelationOwner(outbox));
  Run("SELECT keys::double precision, attempts::double precision FROM postbox.parked_gauges($1)",
      publication);
  values[P::kParkedKeys] = NumberColumn(0, 1);
  values[P::kAttempts] = NumberColumn(0, 2);
  return values;
}

double ReadOutbox(Oid relation) {
  Parameters outbox;
  outbox.AddOid(REGCLASSOID, relation);
  const ActAs owner(RelationOwner(relation));
  return Run("SELECT behind FROM postbox.outbox_gauges($1)", outbox) == 0 ? kUnknown
                                                                          : NumberColumn(0, 1);
}

std::array<double, InboxMetrics::kGauges> ReadInbox(Oid relation) {
  Parameters inbox;
  inbox.AddOid(REGCLASSOID, relation);
  if (Run("SELECT dead_letters::double precision, parked_keys::double precision, behind "
          "FROM postbox.inbox_gauges($1)",
          inbox) == 0) {
    return {kUnknown, kUnknown, kUnknown};
  }
  return {NumberColumn(0, 1), NumberColumn(0, 2), NumberColumn(0, 3)};
}

// The gauges of subscriptions and credentials, which are in tables of a few rows.
void MeasureSmall(Objects* objects) {
  const uint64 rows = Run("SELECT kind, name, value FROM postbox.small_gauges()");
  for (uint64 row = 0; row < rows; ++row) {
    const std::string what = TextColumn(row, 1);
    const bool is_credential = what == "credential";
    const auto kind = is_credential ? MetricKind::kCredential : MetricKind::kSubscription;
    const auto place = objects->Find(kind, InvalidOid, TextColumn(row, 2));
    if (!place) continue;
    using S = SubscriptionMetrics;
    MetricsState* metrics = metrics_state();
    Gauge& gauge = is_credential ? metrics->credentials.data[place->index].gauges[0]
                                 : metrics->subscriptions.data[place->index]
                                       .gauges[what == "pause" ? S::kPaused : S::kPullers];
    gauge = NumberColumn(row, 3);
  }
}

}  // namespace

Moment Gauges::NextStep() const {
  return metrics_state() == nullptr ? kNever : After(next_, Scaled(kLate));
}

void Gauges::Step(Moment now) {
  // A clock that was set back makes no longer pause either.
  if ((now < next_ && next_ <= After(now, kLongestPause)) || metrics_state() == nullptr) return;
  const Moment begin = GetCurrentTimestamp();
  do {
    Proceed(now);
  } while (in_round_ && Between(begin, GetCurrentTimestamp()) < kStepTime && !StopRequested());
  const Moment end = GetCurrentTimestamp();
  next_ = std::min(end + kPauseFactor * (end - begin), After(end, kLongestPause));
  if (!in_round_) next_ = std::max(next_, After(round_, Scaled(kRound)));
}

void Gauges::Proceed(Moment now) {
  try {
    if (!in_round_) {
      Begin(now);
    } else if (!left_.empty()) {
      const Target target = std::move(left_.front());
      left_.pop_front();
      Measure(target);
    }
  } catch (const PostgresError& error) {
    LeaveIfExtensionGone();
    if (!IsPassing(error)) LogFailure("measure the gauges of postbox.metrics", error);
  }
  if (in_round_ && left_.empty()) End();
}

void Gauges::Begin(Moment now) {
  round_ = now;
  std::deque<Target> targets;
  Objects objects;
  InTransaction("postbox: measuring gauges", [&] {
    const uint64 rows = Run("SELECT kind, name, relation FROM postbox.metered_objects()");
    for (uint64 row = 0; row < rows; ++row) {
      const std::string kind = TextColumn(row, 1);
      Target target{kind == "publication" ? MetricKind::kPublication
                    : kind == "outbox"    ? MetricKind::kOutbox
                                          : MetricKind::kInbox,
                    static_cast<Oid>(Int64Column(row, 3)),
                    TextColumn(row, 2),
                    {}};
      const bool has_name = target.kind == MetricKind::kPublication;
      const Oid known_as = has_name ? InvalidOid : target.relation;
      const auto place = objects.Find(target.kind, known_as, target.name);
      if (!place) continue;
      target.place = *place;
      targets.push_back(std::move(target));
    }
    MeasureSmall(&objects);
  });
  objects.ForgetOthers();
  left_ = std::move(targets);
  in_round_ = true;
}

void Gauges::End() {
  in_round_ = false;
  const auto place = Pg([] { return FindMetrics(MetricKind::kDatabase, InvalidOid); });
  if (!place) return;
  auto& gauges = metrics_state()->databases.data[place->index].gauges;
  gauges[DatabaseMetrics::kMeasuredAt] = static_cast<double>(round_);
}

void Gauges::Measure(const Target& target) {
  // It may have been dropped since the round began.
  if (!IsPlace(target.kind, target.place)) return;
  const size_t place = target.place.index;
  MetricsState* metrics = metrics_state();
  std::array<double, PublicationMetrics::kGauges> publication;
  std::array<double, InboxMetrics::kGauges> inbox;
  publication.fill(kUnknown);
  inbox.fill(kUnknown);
  double outbox = kUnknown;
  const auto store = [&] {
    if (target.kind == MetricKind::kPublication) {
      Set(&metrics->publications.data[place].gauges, publication);
    } else if (target.kind == MetricKind::kOutbox) {
      Set(&metrics->outboxes.data[place].gauges, {outbox});
    } else {
      Set(&metrics->inboxes.data[place].gauges, inbox);
    }
  };
  Transaction transaction("postbox: measuring gauges");
  transaction.Limit(target.relation, Scaled(kObjectTime));
  try {
    transaction.Run([&] {
      transaction.Begin();
      if (target.kind == MetricKind::kPublication) {
        publication = ReadPublication(target.name, target.relation, target.place);
      } else if (target.kind == MetricKind::kOutbox) {
        outbox = ReadOutbox(target.relation);
      } else {
        inbox = ReadInbox(target.relation);
      }
    });
  } catch (const PostgresError&) {
    store();
    throw;
  }
  store();
}

}  // namespace postbox::publisher

// See retention.h.
#include "worker/publisher/retention.h"

#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "extension/shared/time_scale.h"
#include "extension/trust/act_as.h"
#include "worker/publisher/base/failpoint.h"
#include "worker/publisher/base/limited_log.h"
#include "worker/publisher/base/passing_error.h"
#include "worker/publisher/base/registration.h"
#include "worker/publisher/base/step_limit.h"
#include "worker/publisher/base/transaction.h"
#include "worker/publisher/scale.h"

namespace postbox::publisher {

namespace {

using std::chrono::milliseconds;

// A batch may take so long, and has so many rows.
constexpr milliseconds kBatchTime = std::chrono::seconds(2);
constexpr std::size_t kFewestRows = 100, kMostRows = 10'000;
// An outbox or inbox whose smallest batch took too long, or whose code has ended a worker, is left
// out for so long.
constexpr milliseconds kAvoid = std::chrono::minutes(10);

}  // namespace

Retention::Experience& Retention::ExperienceOf(Oid relation) {
  return experience_.try_emplace(relation, Experience{{kFewestRows, kMostRows}}).first->second;
}

TimestampTz Retention::WaitsUntil(const Table& table) const {
  const auto known = experience_.find(table.relation);
  return known == experience_.end() ? 0 : known->second.WaitsUntil();
}

void Retention::Avoid(Oid relation, TimestampTz now) {
  ExperienceOf(relation).avoided_until = After(now, Scaled(kAvoid));
}

TimestampTz Retention::NextStep() const {
  TimestampTz next = DT_NOEND;
  for (const Table& table : left_) next = std::min(next, WaitsUntil(table));
  return next;
}

bool Retention::Step(TimestampTz now) {
  const int64 interval_ms = static_cast<int64>(settings().maintenance_interval) * 1000;
  // Also where the last round has not ended: no table keeps others from theirs.
  const bool due = now >= TimestampTzPlusMilliseconds(last_round_, interval_ms);
  if (!due && !FindTable(now)) return false;
  try {
    if (due) {
      last_round_ = now;
      Begin(now, std::exchange(left_, {}));
    } else {
      PurgeFirst();
    }
  } catch (const PostgresError& error) {
    Failed(error, now);
  }
  return FindTable(now);
}

bool Retention::FindTable(TimestampTz now) {
  const auto found = std::find_if(left_.begin(), left_.end(),
                                  [&](const Table& table) { return WaitsUntil(table) <= now; });
  if (found == left_.end()) return false;
  std::rotate(left_.begin(), found, left_.end());
  return true;
}

void Retention::Begin(TimestampTz now, const std::deque<Table>& waiting) {
  std::deque<Table> tables;
  InTransaction("postbox: looking for events to purge", [&] {
    const uint64 rows =
        Run("SELECT relation::pg_catalog.oid::bigint, true FROM postbox.outbox "
            "WHERE retention IS NOT NULL OR kind OPERATOR(pg_catalog.=) 'log' "
            "UNION ALL SELECT relation::pg_catalog.oid::bigint, false FROM postbox.inbox "
            "WHERE retention IS NOT NULL");
    for (uint64 row = 0; row < rows; ++row) {
      tables.push_back({static_cast<Oid>(Int64Column(row, 1)), BoolColumn(row, 2)});
    }
  });
  InTransaction("postbox: purging records of expired events", [] {
    Run("DELETE FROM postbox.expired_event WHERE ctid OPERATOR(pg_catalog.=) ANY (ARRAY("
        "SELECT e.ctid FROM postbox.outbox o CROSS JOIN LATERAL (SELECT e.ctid FROM "
        "postbox.expired_event e WHERE e.outbox OPERATOR(pg_catalog.=) o.relation AND e.expired_at "
        "OPERATOR(pg_catalog.<) (pg_catalog.now() OPERATOR(pg_catalog.-) o.retention) "
        "ORDER BY e.expired_at LIMIT 100000) e WHERE o.retention IS NOT NULL LIMIT 100000))");
  });
  std::erase_if(experience_, [&](const auto& one) {
    return one.second.WaitsUntil() <= now &&
           std::none_of(tables.begin(), tables.end(),
                        [&](const Table& table) { return table.relation == one.first; });
  });
  const auto place = [&](const Table& table) {
    return std::find_if(waiting.begin(), waiting.end(),
                        [&](const Table& other) { return other.relation == table.relation; }) -
           waiting.begin();
  };
  std::stable_sort(tables.begin(), tables.end(),
                   [&](const Table& one, const Table& other) { return place(one) < place(other); });
  left_ = std::move(tables);
}

void Retention::PurgeFirst() {
  const Table table = left_.front();
  Experience& experience = ExperienceOf(table.relation);
  const TimestampTz begin = GetCurrentTimestamp();
  const std::size_t batch = experience.batch.value();
  std::size_t rows = 0;
  try {
    rows = Purge(batch);
  } catch (const PostgresError&) {
    Charge(table.relation, begin, 0, true);
    throw;
  }
  Charge(table.relation, begin, rows, false);
  left_.pop_front();
  if (rows > 0) left_.push_back(table);
  if (Between(begin, GetCurrentTimestamp()) * 4 < Scaled(kBatchTime)) experience.batch.Grow(rows);
}

void Retention::Charge(Oid relation, TimestampTz begin, std::size_t rows, bool failed) {
  if (published_.size() <= published_.count(relation)) return;
  ExperienceOf(relation).account.Charge(
      {begin, GetCurrentTimestamp(), rows, false, Scaled(kBatchTime), failed},
      TurnAccount::kWaitFactor * Scaled(kBatchTime), Scale());
}

void Retention::Failed(const PostgresError& error, TimestampTz now) {
  const Oid relation = left_.empty() ? InvalidOid : left_.front().relation;
  if (OidIsValid(relation) && error.sqlstate == ERRCODE_QUERY_CANCELED && !IsPassing(error)) {
    AdaptiveSize& batch = ExperienceOf(relation).batch;
    if (!batch.IsLeast()) {
      batch.Shrink();
      return;
    }
    Avoid(relation, now);
  }
  const std::string message = "could not purge events: " + error.message;
  LogLimited(SubjectOf(message) + ' ' + std::to_string(relation),
             {.message = message, .detail = error.detail});
  if (!left_.empty()) left_.pop_front();
}

std::size_t Retention::Purge(std::size_t batch) {
  const Table& table = left_.front();
  std::size_t purged = 0;
  Transaction transaction("postbox: purging events");
  transaction.Limit(table.relation, Scaled(kBatchTime));
  transaction.Run([&] {
    transaction.Begin();
    const ActAs owner(RelationOwner(table.relation));
    Parameters relation;
    relation.AddOid(REGCLASSOID, table.relation);
    relation.AddInt(static_cast<int>(batch));
    Run(table.outbox ? "SELECT postbox.purge_outbox($1, $2)" : "SELECT postbox.purge_inbox($1)",
        relation);
    if (table.outbox) purged = static_cast<std::size_t>(Int64Column(0, 1));
    if (purged > 0) Failpoint("during_retention");
    // A log and an inbox empty partitions, and have no more rows to purge after that. If they did,
    // or if the current generation of an inbox has changed, the transaction has an id.
    if (purged == 0 && TransactionIdIsValid(GetTopTransactionIdIfAny())) {
      Failpoint("during_rotation");
    }
  });
  return purged;
}

}  // namespace postbox::publisher

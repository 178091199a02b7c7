// See retention.h.
#include "worker/publisher/retention.h"

#include "extension/base/act_as.h"
#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "worker/publisher/base/failpoint.h"
#include "worker/publisher/base/limited_log.h"
#include "worker/publisher/base/passing_error.h"
#include "worker/publisher/base/registration.h"
#include "worker/publisher/base/transaction.h"

namespace postbox::publisher {

namespace {

// A batch may take so long.
constexpr std::chrono::milliseconds kBatchTime = std::chrono::seconds(2);
// An outbox or inbox whose batch took longer, or whose code has ended a worker, is left out for so
// long.
constexpr int64 kAvoidMs = 600'000;

}  // namespace

void Retention::Avoid(Oid relation, TimestampTz now) {
  avoided_[relation] = TimestampTzPlusMilliseconds(now, kAvoidMs);
}

bool Retention::Step(TimestampTz now) {
  if (left_.empty()) {
    const int64 interval_ms = static_cast<int64>(settings().maintenance_interval) * 1000;
    if (now < TimestampTzPlusMilliseconds(last_round_, interval_ms)) return false;
    last_round_ = now;
  }
  try {
    if (left_.empty()) {
      Begin(now);
    } else if (Purge(left_.back())) {
      left_.pop_back();
    }
  } catch (const PostgresError& error) {
    const std::string message = "could not purge events: " + error.message;
    const Oid relation = left_.empty() ? InvalidOid : left_.back().relation;
    LogLimited(SubjectOf(message) + ' ' + std::to_string(relation),
               {.message = message, .detail = error.detail});
    if (!left_.empty()) {
      if (error.sqlstate == ERRCODE_QUERY_CANCELED && !IsPassing(error))
        Avoid(left_.back().relation, now);
      left_.pop_back();
    }
  }
  return !left_.empty();
}

void Retention::Begin(TimestampTz now) {
  std::erase_if(avoided_, [now](const auto& one) { return one.second <= now; });
  std::vector<Table> tables;
  InTransaction("postbox: looking for events to purge", [&] {
    const uint64 rows =
        Run("SELECT relation::pg_catalog.oid::bigint, true FROM postbox.outbox "
            "WHERE retention IS NOT NULL OR kind OPERATOR(pg_catalog.=) 'log' "
            "UNION ALL SELECT relation::pg_catalog.oid::bigint, false FROM postbox.inbox "
            "WHERE retention IS NOT NULL");
    for (uint64 row = 0; row < rows; ++row) {
      const auto relation = static_cast<Oid>(Int64Column(row, 1));
      if (!avoided_.contains(relation)) tables.push_back({relation, BoolColumn(row, 2)});
    }
  });
  left_ = std::move(tables);
}

bool Retention::Purge(const Table& table) {
  int64 purged = 0;
  Transaction transaction("postbox: purging events");
  transaction.Limit(table.relation, kBatchTime);
  transaction.Run([&] {
    transaction.Begin();
    const ActAs owner(RelationOwner(table.relation));
    Parameters relation;
    relation.AddOid(REGCLASSOID, table.relation);
    Run(table.outbox ? "SELECT postbox.purge_outbox($1)" : "SELECT postbox.purge_inbox($1)",
        relation);
    purged = Int64Column(0, 1);
    if (purged > 0) Failpoint("during_retention");
    // A log empties partitions and counts no events. If it did, the transaction has an id.
    if (table.outbox && purged == 0 && TransactionIdIsValid(GetTopTransactionIdIfAny())) {
      Failpoint("during_rotation");
    }
  });
  return purged == 0;
}

}  // namespace postbox::publisher

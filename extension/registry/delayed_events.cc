// Which parked events wait for their deliver_at, and since when an event waits, for the status.
#include "extension/registry/backlog_counter.h"

namespace postbox {
namespace {

constexpr char kDelayed[] =
    " AND q.next_retry_at > now() AND q.next_retry_at < 'infinity' AND q.publish_attempts = 0 AND "
    "q.last_error IS NULL";

}  // namespace

std::string WaitingSince(const OutboxColumns& columns, const std::string& of) {
  const std::string occurred = columns.OccurredAt(of);
  if (columns.attributes.type != "jsonb") return occurred;
  const std::string attributes = of + columns.attributes.name;
  return "(CASE WHEN " + attributes + " ? 'postbox_deliver_at' THEN postbox.waiting_since(" +
         attributes + " ->> 'postbox_deliver_at', " + occurred + ") ELSE " + occurred + " END)";
}

DelayedEvents::DelayedEvents(const std::string& from, const std::string& key,
                             const std::string& since, const std::string& infinite_order,
                             const std::vector<Oid>& types) {
  const std::string most = Limit(kCountedParked);
  // What fails is retried within a day: among what is due later, few rows are passed.
  any_ =
      PlannedOnce("SELECT FROM (SELECT q.publish_attempts, q.last_error" + from +
                      " AND q.next_retry_at > now() AND q.next_retry_at < 'infinity' ORDER BY "
                      "q.next_retry_at DESC" +
                      most + ") AS q WHERE q.publish_attempts = 0 AND q.last_error IS NULL LIMIT 1",
                  types);
  const std::string row =
      "(SELECT " + key + " AS key, " + since +
      " AS occurred_at, q.next_retry_at = 'infinity' AND q.publish_attempts = 0 "
      "AS behind, q.publish_attempts = 0 AND q.last_error IS NULL AS clean" +
      from;
  const std::string by_time = " ORDER BY q.next_retry_at" + most + ")";
  count_ = PlannedOnce(
      "WITH d AS MATERIALIZED (SELECT " + key + " AS key" + from + kDelayed + by_time +
          ", t AS MATERIALIZED (" + row + " AND q.next_retry_at <= now()" + by_time +
          " UNION ALL SELECT * FROM " + row +
          " AND q.next_retry_at > now() AND q.next_retry_at < 'infinity'" + by_time +
          " AS r WHERE NOT r.clean UNION ALL " + row + " AND q.next_retry_at >= 'infinity'" +
          infinite_order + most +
          ")), w AS (SELECT t.occurred_at, t.behind AND t.key IN (SELECT d.key FROM d) AS delayed "
          "FROM t) SELECT (SELECT count(*) FROM d), count(*) FILTER (WHERE w.delayed), count(*) "
          "FILTER (WHERE NOT w.delayed), min(w.occurred_at) FILTER (WHERE isfinite(w.occurred_at) "
          "AND NOT w.delayed) FROM w",
      types);
}

void DelayedEvents::TakeOut(const Datum* values, const char* nulls, Backlog* backlog) {
  if (backlog->parked == 0 || any_.RunReadOnly(values, nulls) == 0) return;
  count_.RunReadOnly(values, nulls);
  const int64 delayed = Int64Column(0, 1);
  const int64 others = Int64Column(0, 3);
  backlog->delayed = delayed + Int64Column(0, 2);
  // Of more than were looked at, the rest is like the most.
  if (delayed == kCountedParked)
    backlog->delayed = std::max(backlog->delayed, backlog->parked - others);
  backlog->delayed = std::min(backlog->delayed, backlog->parked);
  backlog->parked -= backlog->delayed;
  RequireColumnType(4, TIMESTAMPTZOID);
  backlog->oldest_parked = IsNull(0, 4) ? DT_NOEND : DatumGetTimestampTz(DatumColumn(0, 4));
}

}  // namespace postbox

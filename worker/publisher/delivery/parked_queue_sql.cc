#include "worker/publisher/delivery/parked_queue_sql.h"

#include "worker/publisher/base/fill.h"

namespace postbox::publisher {

ParkedQueueSql MakeParkedQueueSql(const ParkedQueueForm& form) {
  // Where a row is found by its place, conditions on its state stand in a CASE: no index fits that,
  // so a plan that is made for a small table is no scan of all rows.
  const std::string still_behind = std::string(kBehind) + std::string(form.still);
  const auto fill = [&](std::string_view text) {
    return Fill(text, {{"table", form.table},
                       {"key", form.key},
                       {"aggregate_id", form.aggregate_id},
                       {"of", form.of},
                       {"order", form.order},
                       {"times", form.times},
                       {"behind_time", form.behind_time},
                       {"still_behind", still_behind},
                       {"parked", form.parked},
                       {"lock", form.lock},
                       {"freed", form.freed},
                       {"free", form.free},
                       {"slice", form.slice}});
  };
  ParkedQueueSql sql;
  // From the first row of each key to the next greater key, however many rows lie in between.
  sql.heads = fill(
      "WITH RECURSIVE head AS ((SELECT {key} AS key, {aggregate_id} AS aggregate_id, q.seq, q.ctid "
      "AS tid, {still_behind} AS behind, 1 AS n FROM {table} q WHERE {of} AND {key} >= $3 "
      "ORDER BY {order}, q.seq LIMIT 1) "
      "UNION ALL SELECT next.*, head.n + 1 FROM head CROSS JOIN LATERAL (SELECT {key}, "
      "{aggregate_id}, q.seq, q.ctid, {still_behind} FROM {table} q WHERE {of} AND {key} > "
      "head.key "
      "ORDER BY {order}, q.seq LIMIT 1) AS next WHERE head.n < $4) "
      "SELECT key, seq, tid, behind, true{slice} FROM head");
  sql.heads_of = fill(
      "SELECT k.key, h.seq, h.tid, h.behind FROM unnest($3, $4) AS k(key, after) CROSS JOIN "
      "LATERAL (SELECT q.seq, q.ctid AS tid, {still_behind} AS behind FROM {table} q WHERE {of} "
      "AND {key} = k.key AND q.seq > k.after ORDER BY {order}, q.seq LIMIT 1) AS h");
  sql.hold = fill("SELECT {key} FROM {table} q WHERE q.ctid = ANY($1){parked} {lock} SKIP LOCKED");
  sql.make_due = fill(
      "UPDATE {table} AS q SET next_retry_at = now(){free} WHERE q.ctid = ANY(ARRAY(SELECT q.ctid "
      "FROM {table} q WHERE q.ctid = ANY($1) AND CASE WHEN {still_behind} THEN true ELSE false END "
      "FOR UPDATE SKIP LOCKED)) RETURNING {key}");
  sql.put_behind = fill(
      "UPDATE {table} SET next_retry_at = 'infinity', publish_attempts = 0{free} WHERE ctid = "
      "ANY($1)");
  sql.free_behind = fill(
      "UPDATE {table} SET next_retry_at = {freed}{free} WHERE ctid = ANY(ARRAY(SELECT q.ctid FROM "
      "{table} q WHERE {of} AND q.next_retry_at {behind_time} AND q.publish_attempts = 0{slice} "
      "ORDER BY {times} LIMIT $3 FOR UPDATE SKIP LOCKED))");
  return sql;
}

std::string Retry() {
  return "publish_attempts = publish_attempts + $5, last_error = nullif($3, ''), next_retry_at = " +
         RetryAt("$4");
}

std::string RetryAt(std::string_view seconds) {
  return Fill(
      "CASE WHEN {seconds} = 'infinity' THEN 'infinity' ELSE now() + make_interval(secs => "
      "{seconds}) END",
      {{"seconds", seconds}});
}

}  // namespace postbox::publisher

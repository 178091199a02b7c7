// See log_outbox_sql.h.
#include "worker/publisher/source/log/log_outbox_sql.h"

#include <functional>

#include "extension/shared/outbox_columns.h"
#include "worker/publisher/base/fill.h"
#include "worker/publisher/source/event_rows.h"

namespace postbox::publisher {

namespace {

constexpr std::string_view kColumns =
    "seq, id, aggregate_type, aggregate_id, event_type, version, schema_version, payload, "
    "attributes, occurred_at";

constexpr std::string_view kEventColumns =
    "id, aggregate_type, aggregate_id, event_type, version, schema_version, payload, attributes, "
    "occurred_at";

// The rows with a seq, to be followed by ORDER BY seq. Only the index on (origin, seq) gives that
// order (enable_sort is off), and as a range it is no order that is there anyway. A plan that was
// made for a small partition would read all of the index on (txid, seq) otherwise; and a comparison
// of the rows (origin, seq) does not end a scan, since origin is the same everywhere.
constexpr std::string_view kAt = "origin = {origin} AND seq >= {seq} AND seq <= {seq}";

// Why a row of a log cannot be an event, or NULL: its owner has taken a NOT NULL away, or it
// has more than a message may have. Reads no payload.
constexpr std::string_view kProblem =
    "CASE WHEN aggregate_type IS NULL OR aggregate_id IS NULL OR event_type IS NULL OR version IS "
    "NULL OR version < 1 OR schema_version IS NULL OR payload IS NULL OR attributes IS NULL OR "
    "occurred_at IS NULL THEN 'a column is null' WHEN {too_large} THEN 'its payload is larger "
    "than any message' WHEN jsonb_typeof(attributes) <> 'object' THEN 'attributes are not a JSON "
    "object' WHEN NOT isfinite(occurred_at) THEN 'occurred_at is infinite' END";
// The same of a parked one. Others may have written any text there, however large.
constexpr std::string_view kWhy =
    "CASE WHEN unreadable IS NOT TRUE THEN NULL WHEN substr(last_error, 1, 2000) LIKE 'the row "
    "cannot be "
    "an event: %' THEN substr(last_error, 1, 2000) ELSE 'the row cannot be an event' END";
// What is kept of the attributes of such a row: the one that says what its key is.
constexpr std::string_view kKeyAttributes =
    "CASE WHEN attributes ? 'postbox_key_may_pass' THEN '{\"postbox_key_may_pass\": "
    "\"true\"}'::jsonb "
    "ELSE '{}'::jsonb END";
constexpr std::string_view kTooLarge = "octet_length(payload) > {most}";

constexpr const char* kEvents = "SELECT {columns}";
constexpr const char* kKeys = "SELECT seq, aggregate_id";

// Behind the columns. That a row is of a transaction is said as a range of (txid, seq): after
// txid = t.xid, seq alone would be an order, and its index could serve.
constexpr const char* kLate =
    " FROM (SELECT late.* FROM unnest($1) AS t(xid) CROSS JOIN LATERAL "
    "(SELECT * FROM (SELECT * FROM {log} WHERE (txid, seq) > (t.xid, $2) AND (txid, seq) <= "
    "(t.xid, $3) AND {here}{mine} "
    "ORDER BY txid, seq FETCH FIRST $4 ROWS WITH TIES) AS late LIMIT $5) AS late "
    "ORDER BY seq FETCH FIRST $4 ROWS WITH TIES) AS late LIMIT $5";
constexpr const char* kPlain =
    " FROM {log} WHERE {here} AND seq > $1 AND seq <= $2{mine_plain} ORDER BY seq LIMIT $3";
constexpr const char* kFresh =
    " FROM (SELECT * FROM {log} WHERE {here} AND seq > $1 AND seq <= "
    "$2{mine_new} "
    "ORDER BY seq FETCH FIRST $3 ROWS WITH TIES) AS fresh LIMIT $4";

using Filler = std::function<std::string(std::string_view)>;

void FillReads(const Filler& fill, LogOutboxSql* sql) {
  sql->any_read = fill(
      "SELECT CASE WHEN f.seq > $1 THEN false WHEN pg_visible_in_snapshot(f.txid, $2::pg_snapshot) "
      "THEN true ELSE (SELECT true FROM {log} WHERE txid < $3 AND seq <= $1 AND seq > 0 AND "
      "pg_visible_in_snapshot(txid, $2::pg_snapshot) AND {here} ORDER BY txid, seq LIMIT 1) IS NOT "
      "NULL END FROM (SELECT txid, seq FROM {log} WHERE {here} AND seq > 0 ORDER BY seq LIMIT 1) "
      "f");
  // From one transaction to the next, however many rows each has; and some rows at a time, since
  // most transactions have one. The last one of such a step may have more, and is looked up.
  sql->late_txids = fill(
      "WITH RECURSIVE t AS (SELECT $1 AS txid, ARRAY[]::xid8[] AS txids, ARRAY[]::bigint[] AS seqs "
      "UNION ALL SELECT s.* FROM t CROSS JOIN LATERAL (SELECT (array_agg(r.txid))[count(*)], "
      "array_agg(r.txid) FILTER (WHERE r.late), array_agg(r.seq) FILTER (WHERE r.late) FROM "
      "(SELECT txid, seq, seq > $3 AND seq <= $4{mine} AS late FROM {log} WHERE txid > t.txid AND "
      "txid < $2 AND {here} ORDER BY txid, seq LIMIT 20) AS r) AS s WHERE t.txid IS NOT NULL) "
      "SELECT l.txid, min(l.seq) FROM (SELECT u.* FROM t CROSS JOIN LATERAL unnest(t.txids, "
      "t.seqs) AS u(txid, seq) UNION ALL SELECT t.txid, f.seq FROM t CROSS JOIN LATERAL (SELECT "
      "seq FROM {log} WHERE (txid, seq) > (t.txid, $3) AND (txid, seq) <= (t.txid, $4) AND "
      "{here}{mine} ORDER BY txid, seq LIMIT 1) AS f WHERE t.txid > $1) AS l GROUP BY l.txid "
      "ORDER BY min(l.seq) FETCH FIRST $5 ROWS WITH TIES");
  sql->any_late = fill(
      "SELECT FROM {log} WHERE txid > $1 AND txid < $2 AND seq > $3 AND seq <= $4 AND "
      "{here}{mine_new} ORDER BY txid, seq LIMIT 1");
  sql->late = fill(std::string(kEvents) + kLate);
  sql->late_keys = fill(std::string(kKeys) + kLate);
  sql->plain = fill(std::string(kEvents) + kPlain);
  sql->fresh = fill(std::string(kEvents) + kFresh);
  sql->fresh_keys = fill(std::string(kKeys) + kFresh);
  sql->transaction_of = fill(
      "SELECT e.txid, l.seq FROM (SELECT txid FROM {log} WHERE {at_1} ORDER BY seq) AS e CROSS "
      "JOIN LATERAL (SELECT seq FROM {log} WHERE {here} AND (txid, seq) <= (e.txid, $2) AND "
      "txid >= e.txid ORDER BY txid DESC, seq DESC LIMIT 1) AS l ORDER BY l.seq DESC LIMIT 1");
  const std::string again =
      " FROM (SELECT DISTINCT failed FROM unnest($1) AS failed ORDER BY failed) AS w CROSS JOIN "
      "LATERAL (SELECT {columns} FROM {log} WHERE {at_failed}{mine_again} ORDER BY seq OFFSET 0) "
      "AS e ORDER BY w.failed";
  sql->again = fill(kEvents + again);
  sql->again_keys = fill(kKeys + again);
}

void FillParking(const Filler& fill, LogOutboxSql* sql) {
  // Behind a row that may just be going, it is due: Claim() looks whether it is the first then. A
  // row that cannot be an event is parked as in park_unreadable.
  sql->park_behind = fill(
      "INSERT INTO {parked} (publication, seq, {event}, publish_attempts, last_error, "
      "next_retry_at, unreadable) SELECT $1, seq, id, coalesce(aggregate_type, ''), "
      "coalesce(aggregate_id, "
      "''), coalesce(event_type, ''), greatest(version, 1), coalesce(schema_version, ''), "
      "CASE WHEN {too_large} THEN '' ELSE coalesce(payload, '') END, coalesce(attributes, "
      "{no_attributes}), "
      "coalesce(occurred_at, now()), 0, 'the row cannot be an event: ' || {problem}, "
      "CASE WHEN $4 THEN 'infinity' ELSE now() END, {problem} IS NOT NULL FROM (SELECT DISTINCT * "
      "FROM unnest($2, $3) AS "
      "u(behind_seq, key)) AS w CROSS JOIN LATERAL (SELECT * FROM {log} WHERE {at_behind} AND "
      "w.key IN (coalesce({key}, ''), coalesce(aggregate_id, '')) ORDER BY seq OFFSET 0) AS e ON "
      "CONFLICT (publication, "
      "id) DO NOTHING");
  sql->park = fill(
      "INSERT INTO {parked} (publication, seq, {event}, publish_attempts, last_error, "
      "next_retry_at) SELECT $1, seq, {event}, $3, nullif($4, ''), {retry_at} FROM (SELECT * FROM "
      "{log} WHERE "
      "{at_2} "
      "ORDER BY seq OFFSET 0) AS e WHERE $6 IN (coalesce({key}, ''), coalesce(aggregate_id, '')) "
      "ON CONFLICT (publication, id) DO NOTHING RETURNING id::text");
  // The columns of the table of parked events are NOT NULL.
  sql->park_unreadable = fill(
      "INSERT INTO {parked} (publication, seq, {event}, publish_attempts, last_error, "
      "next_retry_at, unreadable) SELECT $1, seq, id, coalesce(aggregate_type, ''), "
      "coalesce(aggregate_id, "
      "''), "
      "coalesce(event_type, ''), greatest(version, 1), coalesce(schema_version, ''), '', "
      "{key_attributes}, now(), $3, $4, {retry_at}, true FROM (SELECT * FROM {log} WHERE {at_2} "
      "ORDER BY seq OFFSET 0) AS e WHERE $6 IN (coalesce({key}, ''), coalesce(aggregate_id, '')) "
      "ON CONFLICT (publication, id) DO NOTHING RETURNING id::text");
  sql->repair = fill(
      "UPDATE {parked} p SET aggregate_type = e.aggregate_type, aggregate_id = e.aggregate_id, "
      "event_type = e.event_type, version = e.version, schema_version = e.schema_version, "
      "payload = e.payload, attributes = e.attributes, occurred_at = e.occurred_at, "
      "unreadable = false "
      "FROM {log} e WHERE p.publication = $1 AND p.id = ANY(ARRAY(SELECT unnest($2)::uuid)) "
      "AND e.id = p.id AND e.seq = p.seq AND e.aggregate_type IS NOT NULL AND e.aggregate_id IS "
      "NOT NULL AND e.event_type IS NOT NULL AND e.version > 0 AND e.schema_version IS NOT NULL "
      "AND octet_length(e.payload) <= {most} AND jsonb_typeof(e.attributes) = 'object' "
      "AND isfinite(e.occurred_at)");
  // Sorted by id, since nothing but the primary key gives that order: with id = ANY($2), all rows
  // of the publication are read if there were few when the plan was made.
  sql->lock = fill(
      "SELECT p.ctid FROM unnest($2) AS w(id) CROSS JOIN LATERAL (SELECT p.ctid FROM {parked} p "
      "WHERE p.publication = $1 AND p.id >= w.id::uuid AND p.id <= w.id::uuid ORDER BY p.id "
      "FOR UPDATE) AS p");
  sql->unpark = fill("DELETE FROM {parked} WHERE ctid = ANY($1)");
  sql->park_again = fill("UPDATE {parked} SET {retry} WHERE publication = $1 AND id = $2::uuid");
}

// Each goes through one index: (publication, key, seq) to the rows of a key, or
// (publication, next_retry_at, publish_attempts, seq) to what is due.
void FillQueue(const Filler& fill, LogOutboxSql* sql) {
  sql->due = fill(
      "SELECT {key}, seq, id::text FROM {parked} WHERE publication = $1 AND next_retry_at <= "
      "now(){slice} AND {key} NOT IN (SELECT unnest($3)) "
      "ORDER BY next_retry_at, publish_attempts, seq LIMIT $2");
  sql->rows_of_keys = fill(
      "SELECT {columns}, publish_attempts, {why}, republished IS TRUE FROM unnest($2, $3) AS "
      "k(key, "
      "after) CROSS JOIN "
      "LATERAL (SELECT p.* FROM {parked} p WHERE p.publication = $1 AND {key_p} = k.key "
      "AND p.seq > k.after ORDER BY p.publication, {key_p}, p.seq LIMIT $4) AS p LIMIT $4");
  sql->rows_of_ids = fill(
      "SELECT {columns}, publish_attempts, {why}, republished IS TRUE FROM unnest($2) AS "
      "w(parked_id) CROSS JOIN "
      "LATERAL "
      "(SELECT p.* FROM {parked} p WHERE p.publication = $1 AND p.id >= w.parked_id::uuid AND "
      "p.id <= w.parked_id::uuid ORDER BY p.id LIMIT 1) AS p ORDER BY seq");
}

ParkedQueueForm FormOf(const std::string& parked, const std::string& slice) {
  return {.table = parked,
          .key = LogKey("q."),
          .aggregate_id = "q.aggregate_id",
          .of = "q.publication = $1",
          .order = "q.publication, " + LogKey("q."),
          .times = "q.next_retry_at, q.publish_attempts, q.seq",
          .behind_time = "= 'infinity'",
          .still = "",
          .parked = "",
          .slice = slice,
          .lock = "FOR KEY SHARE",
          .freed = "now()",
          .free = ""};
}

}  // namespace

LogOutboxSql MakeLogOutboxSql(const std::string& log, const std::string& parked, int origin,
                              int slice, int lanes, bool typed) {
  const std::string here = "origin = " + std::to_string(origin);
  // A row without a key, which cannot be an event, is in lane 0.
  const std::string in_slice = lanes == 1
                                   ? ""
                                   : " AND coalesce(postbox.lane_slice(aggregate_id, " +
                                         std::to_string(lanes) + "), 0) = " + std::to_string(slice);
  const auto typed_by = [&](const char* parameter) {
    return typed ? in_slice + " AND aggregate_type = ANY(" + parameter + ")" : in_slice;
  };
  const std::string most = std::to_string(kMaxPayload);
  const std::string too_large = Fill(kTooLarge, {{"most", most}});
  const std::string problem = Fill(kProblem, {{"too_large", too_large}});
  const auto at = [&](std::string_view seq) {
    return Fill(kAt, {{"origin", std::to_string(origin)}, {"seq", seq}});
  };
  const std::string at_1 = at("$1"), at_2 = at("$2"), at_failed = at("w.failed"),
                    at_behind = at("w.behind_seq"), retry = Retry(), retry_at = RetryAt("$5"),
                    key = LogKey(), key_p = LogKey("p.");
  const auto fill = [&](std::string_view text) {
    return Fill(text, {{"log", log},
                       {"at_1", at_1},
                       {"at_2", at_2},
                       {"at_failed", at_failed},
                       {"at_behind", at_behind},
                       {"here", here},
                       {"parked", parked},
                       {"columns", kColumns},
                       {"event", kEventColumns},
                       {"slice", in_slice},
                       {"mine", typed_by("$6")},
                       {"mine_new", typed_by("$5")},
                       {"mine_plain", typed_by("$4")},
                       {"mine_again", typed_by("$2")},
                       {"no_attributes", "'{}'"},
                       {"key_attributes", kKeyAttributes},
                       {"key", key},
                       {"key_p", key_p},
                       {"retry", retry},
                       {"retry_at", retry_at},
                       {"why", kWhy},
                       {"too_large", too_large},
                       {"problem", problem},
                       {"most", most}});
  };
  LogOutboxSql sql;
  sql.foreign =
      fill("SELECT EXISTS (SELECT FROM {log} WHERE origin > -2147483648 AND origin < " +
           std::to_string(origin) + ") OR EXISTS (SELECT FROM {log} WHERE origin > " +
           std::to_string(origin) +
           "), (SELECT coalesce(sum(f.settled), 0)::bigint FROM postbox.former_position f "
           "WHERE f.publication = $1)");
  FillReads(fill, &sql);
  FillParking(fill, &sql);
  FillQueue(fill, &sql);
  sql.queue = MakeParkedQueueSql(FormOf(parked, in_slice));
  return sql;
}

}  // namespace postbox::publisher

// See log_outbox_sql.h.
#include "worker/publisher/log/log_outbox_sql.h"

#include <functional>

#include "worker/publisher/base/fill.h"

namespace postbox::publisher {

namespace {

constexpr std::string_view kColumns =
    "seq, id, aggregate_type, aggregate_id, event_type, version, schema_version, payload, "
    "attributes, occurred_at";

constexpr std::string_view kEventColumns =
    "id, aggregate_type, aggregate_id, event_type, version, schema_version, payload, attributes, "
    "occurred_at";

using Filler = std::function<std::string(std::string_view)>;

void FillReads(const Filler& fill, LogOutboxSql* sql) {
  // Not SELECT last_value FROM the sequence: nextval() shows there, for a moment, the value that it
  // writes to WAL, which is up to 32 ahead, and a high-water mark that is too high loses events.
  // The function reads under the lock.
  sql->last_seq = fill("SELECT coalesce(pg_sequence_last_value($1), 0)");
  sql->late_txids = fill(
      "SELECT DISTINCT txid FROM {log} WHERE txid >= $1 AND txid < $2 AND seq > $3 AND seq <= $4");
  sql->late = fill(
      "SELECT {columns} FROM (SELECT late.* FROM unnest($1) AS t(xid) CROSS JOIN LATERAL "
      "(SELECT * FROM {log} WHERE txid = t.xid AND seq > $2 AND seq <= $3{mine} "
      "ORDER BY txid, seq LIMIT $4) AS late) AS late ORDER BY seq LIMIT $4");
  sql->fresh = fill(
      "SELECT {columns} FROM {log} WHERE seq > $1 AND seq <= $2{mine_new} ORDER BY seq LIMIT $3");
  sql->again = fill("SELECT {columns} FROM {log} WHERE seq = ANY($1)");
}

void FillParking(const Filler& fill, LogOutboxSql* sql) {
  sql->park_behind = fill(
      "INSERT INTO {parked} (publication, seq, {event}, publish_attempts, next_retry_at) "
      "SELECT $1, seq, {event}, 0, 'infinity' FROM {log} WHERE seq = ANY($2) "
      "ON CONFLICT (publication, id) DO NOTHING");
  sql->park = fill(
      "INSERT INTO {parked} (publication, seq, {event}, publish_attempts, last_error, "
      "next_retry_at) SELECT $1, seq, {event}, $3, $4, CASE WHEN $5 = 'infinity' THEN 'infinity' "
      "ELSE now() + make_interval(secs => $5) END FROM {log} WHERE seq = $2 "
      "ON CONFLICT (publication, id) DO NOTHING RETURNING id::text");
  // The columns of the table of parked events are NOT NULL. Attributes that are no JSON object mark
  // the row as one that cannot be an event; they say why.
  sql->park_unreadable = fill(
      "INSERT INTO {parked} (publication, seq, {event}, publish_attempts, last_error, "
      "next_retry_at) SELECT $1, seq, id, coalesce(aggregate_type, ''), coalesce(aggregate_id, "
      "''), "
      "coalesce(event_type, ''), greatest(version, 1), coalesce(schema_version, ''), '', "
      "to_jsonb($4), now(), $3, $4, CASE WHEN $5 = 'infinity' THEN 'infinity' "
      "ELSE now() + make_interval(secs => $5) END FROM {log} WHERE seq = $2 "
      "ON CONFLICT (publication, id) DO NOTHING RETURNING id::text");
  sql->repair = fill(
      "UPDATE {parked} p SET aggregate_type = e.aggregate_type, aggregate_id = e.aggregate_id, "
      "event_type = e.event_type, version = e.version, schema_version = e.schema_version, "
      "payload = e.payload, attributes = e.attributes, occurred_at = e.occurred_at "
      "FROM {log} e WHERE p.publication = $1 AND p.id = ANY(ARRAY(SELECT unnest($2)::uuid)) "
      "AND e.id = p.id AND e.seq = p.seq AND e.aggregate_type IS NOT NULL AND e.aggregate_id IS "
      "NOT NULL AND e.event_type IS NOT NULL AND e.version > 0 AND e.schema_version IS NOT NULL "
      "AND e.payload IS NOT NULL AND jsonb_typeof(e.attributes) = 'object' "
      "AND isfinite(e.occurred_at)");
  sql->parked_keys =
      fill("SELECT DISTINCT aggregate_id FROM {parked} WHERE publication = $1{slice}");
  sql->due_keys = fill(
      "SELECT DISTINCT aggregate_id FROM (SELECT p.aggregate_id FROM {parked} p "
      "WHERE p.publication = $1{slice} AND (p.next_retry_at <= now() OR p.publish_attempts = 0) "
      "AND p.aggregate_id <> ALL($3){head} ORDER BY p.seq LIMIT $2) AS due");
  sql->parked_rows = fill(
      "SELECT {columns}, publish_attempts, next_retry_at <= now() FROM {parked} "
      "WHERE publication = $1 AND aggregate_id = ANY($2) ORDER BY seq LIMIT $3");
  sql->unpark = fill(
      "DELETE FROM {parked} WHERE publication = $1 AND id = ANY(ARRAY(SELECT unnest($2)::uuid))");
  sql->park_again = fill(
      "UPDATE {parked} SET publish_attempts = publish_attempts + 1, last_error = CASE WHEN "
      "jsonb_typeof(attributes) = 'object' THEN $3 ELSE coalesce(last_error, $3) END, "
      "next_retry_at = CASE WHEN $4 = 'infinity' THEN 'infinity' "
      "ELSE now() + make_interval(secs => $4) END WHERE publication = $1 AND id = $2::uuid");
}

}  // namespace

LogOutboxSql MakeLogOutboxSql(const std::string& log, const std::string& parked, int slice,
                              int lanes, bool parked_blocks, bool typed) {
  // A row without a key, which cannot be an event, is in lane 0.
  const std::string in_slice = lanes == 1
                                   ? ""
                                   : " AND coalesce(postbox.lane_slice(aggregate_id, " +
                                         std::to_string(lanes) + "), 0) = " + std::to_string(slice);
  const auto typed_by = [&](const char* parameter) {
    return typed ? in_slice + " AND aggregate_type = ANY(" + parameter + ")" : in_slice;
  };
  const std::string head =
      !parked_blocks ? ""
                     : Fill(
                           " AND NOT EXISTS (SELECT FROM {parked} earlier WHERE "
                           "earlier.publication = p.publication AND earlier.aggregate_id = "
                           "p.aggregate_id AND earlier.seq < p.seq)",
                           {{"parked", parked}});
  const auto fill = [&](std::string_view text) {
    return Fill(text, {{"log", log},
                       {"parked", parked},
                       {"columns", kColumns},
                       {"event", kEventColumns},
                       {"slice", in_slice},
                       {"mine", typed_by("$5")},
                       {"mine_new", typed_by("$4")},
                       {"head", head}});
  };
  LogOutboxSql sql;
  FillReads(fill, &sql);
  FillParking(fill, &sql);
  return sql;
}

}  // namespace postbox::publisher

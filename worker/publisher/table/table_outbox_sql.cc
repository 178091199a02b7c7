// See table_outbox_sql.h.
#include "worker/publisher/table/table_outbox_sql.h"

#include <string_view>

#include "worker/publisher/base/fill.h"

namespace postbox::publisher {

namespace {

constexpr std::string_view kUnleased = "published_at IS NULL AND lock_token IS NULL";

// ORDER BY names the key too, which is constant here: it lets nothing but the index on the key and
// seq give the order.
constexpr std::string_view kPredecessor =
    "(SELECT CASE WHEN p.lock_token IS NULL AND p.next_retry_at IS NOT NULL THEN -p.seq ELSE p.seq "
    "END FROM {table} p WHERE {key_p} = {key_c} AND p.seq < c.seq "
    "AND p.published_at IS NULL{type_p}{unparked_p} ORDER BY {key_p} DESC, p.seq DESC LIMIT 1)";

constexpr std::string_view kColumns =
    "c.ctid, c.seq, {key_c}, {payload_size} + pg_column_size(c.{attributes_name}), {predecessor}";

}  // namespace

TableOutboxSql MakeTableOutboxSql(const std::string& relation, const OutboxColumns& columns,
                                  bool ordered, bool parked_blocks, bool typed) {
  // `types` is the number of the parameter that holds the aggregate types.
  const auto fill = [&](std::string_view text, std::string_view types) {
    const auto type_of = [&](const char* alias) {
      return !typed ? std::string()
                    : " AND " + (alias + columns.aggregate_type.name) + " = ANY($" +
                          std::string(types) + ")";
    };
    const std::string key_c = columns.AggregateId("c.");
    const std::string key_p = columns.AggregateId("p.");
    const std::string_view unparked_p =
        parked_blocks ? "" : " AND (p.next_retry_at IS NULL OR p.lock_token IS NOT NULL)";
    const std::string predecessor = !ordered ? "0::bigint"
                                             : Fill(kPredecessor, {{"table", relation},
                                                                   {"key_c", key_c},
                                                                   {"key_p", key_p},
                                                                   {"type_p", type_of("p.")},
                                                                   {"unparked_p", unparked_p}});
    const std::string candidate = Fill(kColumns, {{"key_c", key_c},
                                                  {"payload_size", columns.PayloadSize("c.")},
                                                  {"attributes_name", columns.attributes.name},
                                                  {"predecessor", predecessor}});
    return Fill(text, {{"table", relation},
                       {"columns", candidate},
                       {"unleased", kUnleased},
                       {"id", columns.id.name},
                       {"key", columns.AggregateId()},
                       {"key_b", columns.AggregateId("b.")},
                       {"key_c", key_c},
                       {"key_h", columns.AggregateId("h.")},
                       {"event_type", columns.event_type.name},
                       {"aggregate_type", columns.aggregate_type.name},
                       {"version", columns.Version()},
                       {"schema_version", columns.SchemaVersion()},
                       {"payload", columns.Payload()},
                       {"attributes", columns.Attributes()},
                       {"occurred_at", columns.OccurredAt()},
                       {"type_c", type_of("c.")},
                       {"type_h", type_of("h.")}});
  };

  TableOutboxSql sql;
  sql.waiting = fill(
      "SELECT {columns} FROM {table} c WHERE c.published_at IS NULL AND c.lock_token IS NULL "
      "AND c.next_retry_at IS NULL AND c.seq > $1 AND {key_c} <> ALL($3){type_c} "
      "ORDER BY c.seq LIMIT $2",
      "4");
  sql.due = fill(
      "SELECT {columns} FROM {table} c WHERE c.published_at IS NULL AND c.lock_token IS NULL "
      "AND c.next_retry_at IS NOT NULL AND c.next_retry_at <= now(){type_c} "
      "ORDER BY c.next_retry_at LIMIT $1",
      "2");
  sql.lock = fill(
      "SELECT seq, ctid FROM {table} WHERE ctid = ANY($1) AND {unleased} "
      "AND (next_retry_at IS NULL OR next_retry_at <= now()) FOR UPDATE SKIP LOCKED",
      "");
  sql.heads = fill(
      "SELECT (SELECT h.ctid FROM {table} h WHERE {key_h} = k.k AND h.published_at IS "
      "NULL{type_h} ORDER BY {key_h}, h.seq LIMIT 1) FROM unnest($1) AS k(k)",
      "2");
  sql.hold_parked = fill(
      "SELECT {key} FROM {table} WHERE ctid = ANY($1) AND {unleased} "
      "AND next_retry_at IS NOT NULL AND publish_attempts > 0 FOR SHARE SKIP LOCKED",
      "");
  sql.park_behind = fill(
      "UPDATE {table} SET next_retry_at = 'infinity', publish_attempts = 0 WHERE ctid = ANY($1)",
      "");
  sql.lease = fill(
      "UPDATE {table} SET lock_token = $2, locked_at = now(), next_retry_at = NULL "
      "WHERE ctid = ANY($1) RETURNING seq, {id}::text, {aggregate_type}, {key}, {event_type}, "
      "{version}, {schema_version}, {payload}, {attributes}, {occurred_at}, publish_attempts",
      "");

  sql.confirm = fill(
      "UPDATE {table} SET published_at = now(), lock_token = NULL, locked_at = NULL, "
      "last_error = NULL WHERE {id} = ANY(ARRAY(SELECT unnest($1)::uuid)) AND lock_token = $2 "
      "RETURNING {id}::text",
      "");
  sql.release = fill(
      "UPDATE {table} SET lock_token = NULL, locked_at = NULL "
      "WHERE {id} = ANY(ARRAY(SELECT unnest($1)::uuid)) AND lock_token = $2 RETURNING {id}::text",
      "");
  sql.release_behind = fill(
      "UPDATE {table} SET lock_token = NULL, locked_at = NULL, next_retry_at = 'infinity', "
      "publish_attempts = 0 WHERE {id} = ANY(ARRAY(SELECT unnest($1)::uuid)) AND lock_token = $2 "
      "RETURNING {id}::text",
      "");
  sql.park = fill(
      "UPDATE {table} SET lock_token = NULL, locked_at = NULL, publish_attempts = publish_attempts "
      "+ 1, last_error = $3, next_retry_at = CASE WHEN $4 = 'infinity' THEN 'infinity' "
      "ELSE now() + make_interval(secs => $4) END WHERE {id} = $1::uuid AND lock_token = $2 "
      "RETURNING {id}::text",
      "");
  sql.unpark_behind = fill(
      "UPDATE {table} SET next_retry_at = NULL WHERE {key} = ANY($1) AND {unleased} "
      "AND next_retry_at = 'infinity' AND publish_attempts = 0",
      "");

  sql.lease_owners =
      fill("SELECT lock_token FROM {table} WHERE lock_token IS NOT NULL GROUP BY lock_token", "");
  sql.take_over_dead = fill(
      "UPDATE {table} SET lock_token = NULL, locked_at = NULL "
      "WHERE lock_token IS NOT NULL AND lock_token = ANY($1)",
      "");
  sql.take_over_old = fill(
      "UPDATE {table} SET lock_token = NULL, locked_at = NULL WHERE lock_token IS NOT NULL "
      "AND locked_at < now() - make_interval(secs => $1) AND lock_token <> $2",
      "");
  sql.repair = fill(
      "UPDATE {table} SET next_retry_at = NULL WHERE ctid = ANY(ARRAY(SELECT b.ctid FROM {table} b "
      "WHERE b.published_at IS NULL AND b.lock_token IS NULL AND b.next_retry_at = 'infinity' "
      "AND b.publish_attempts = 0 AND (SELECT h.publish_attempts = 0 AND h.lock_token IS NULL "
      "FROM {table} h WHERE {key_h} = {key_b} AND h.published_at IS NULL{type_h} "
      "ORDER BY {key_h}, h.seq LIMIT 1) LIMIT 1000 FOR UPDATE SKIP LOCKED))",
      "1");
  return sql;
}

}  // namespace postbox::publisher

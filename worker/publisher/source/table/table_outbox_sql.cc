// See table_outbox_sql.h.
#include "worker/publisher/source/table/table_outbox_sql.h"

#include <string_view>

#include "extension/shared/shared_state.h"
#include "worker/publisher/base/fill.h"

namespace postbox::publisher {

namespace {

// What waits for ever is not leased, whatever token is written there: a worker sets
// another time when it leases a row.
constexpr std::string_view kUnleased =
    "published_at IS NULL AND (lock_token IS NULL OR next_retry_at = 'infinity')";

// Where rows are found by ctid or by id, conditions on the state stand in a CASE. No index fits
// that, neither one of ours nor one that the owner of an adopted table has made, so the plan that
// is made for a small table is not a scan of all rows that wait, are leased or are parked.
constexpr std::string_view kOurs =
    "CASE WHEN lock_token IS NULL THEN false ELSE lock_token = $2 END";

// Of a row that is found by its place: it stops its key.
constexpr std::string_view kIsParked =
    " AND CASE WHEN {unleased} THEN next_retry_at IS NOT NULL AND NOT ({behind}) ELSE false END";

// ORDER BY names the key too, which is constant here: it lets nothing but the index on the key and
// seq give the order.
constexpr std::string_view kPredecessor =
    "coalesce((SELECT CASE WHEN p.next_retry_at = 'infinity' OR p.lock_token IS NULL AND "
    "p.next_retry_at IS NOT NULL THEN -p.seq ELSE p.seq END FROM {table} p WHERE {key_p} = {key_c} "
    "AND p.seq < c.seq "
    "AND p.published_at IS NULL{type_p}{unparked_p} ORDER BY {key_p} DESC, p.seq DESC LIMIT 1), 0)";

constexpr std::string_view kColumns =
    "c.ctid, c.seq, {key_c}, c.{payload_name}, c.{attributes_name}, {predecessor}";

// What waits, or is leased, in some ranges of seqs, those of $1 and $2.
constexpr std::string_view kWaits =
    " FROM {table} c WHERE c.published_at IS NULL AND c.next_retry_at IS NULL AND c.seq > g.after "
    "AND c.seq <= g.upto";
constexpr std::string_view kRanges = " FROM unnest($1, $2) AS g(after, upto) CROSS JOIN LATERAL (";

// A retry has -infinity there while it is leased, so that no search for what is due passes it.
constexpr std::string_view kDueAgain =
    "next_retry_at = CASE WHEN next_retry_at = '-infinity' THEN now() ELSE next_retry_at END";

// postbox.republish has queued it, and no worker has had it or made it due since.
constexpr std::string_view kBeginsRun =
    "c.publish_attempts = 0 AND c.locked_at IS NOT NULL AND "
    "coalesce(c.last_error = 'queued by postbox.republish', false)";
constexpr std::string_view kRepublished =
    "coalesce(last_error = 'queued by postbox.republish', false)";

constexpr std::string_view kFree = "lock_token = NULL, locked_at = NULL";
// Leases that have run out, and those whose time means nothing. (Clocks differ, and are set back.)
constexpr std::string_view kOld = "c.locked_at < now() - make_interval(secs => $3)";
constexpr std::string_view kTimeless =
    "c.locked_at IS NULL OR c.locked_at > now() + interval '1 day'";

// The names and expressions that the statements are filled with.
class Templates {
 public:
  Templates(std::string relation, const OutboxColumns& columns, bool ordered, bool parked_blocks,
            bool typed)
      : relation_(std::move(relation)),
        columns_(columns),
        ordered_(ordered),
        parked_blocks_(parked_blocks),
        typed_(typed) {}

  // `types` is the number of the parameter that holds the aggregate types.
  std::string Fill(std::string_view text, std::string_view types = "") const {
    return publisher::Fill(text, {{"table", relation_},
                                  {"columns", Candidate(Predecessor(types))},
                                  {"columns_or_lease", Candidate(OfUnleased(types))},
                                  {"begins_run", kBeginsRun},
                                  {"republished", kRepublished},
                                  {"unleased", kUnleased},
                                  {"behind", kBehind},
                                  {"ours", kOurs},
                                  {"due_again", kDueAgain},
                                  {"free", kFree},
                                  {"id", columns_.id.name},
                                  {"aggregate_id", columns_.AggregateId()},
                                  {"key_c", columns_.AggregateId("c.")},
                                  {"key_f", columns_.AggregateId("f.")},
                                  {"payload_name", columns_.payload.name},
                                  {"attributes_name", columns_.attributes.name},
                                  {"event_type", columns_.event_type.name},
                                  {"aggregate_type", columns_.aggregate_type.name},
                                  {"version", columns_.Version()},
                                  {"schema_version", columns_.SchemaVersion()},
                                  {"payload", columns_.Payload()},
                                  {"attributes", columns_.Attributes()},
                                  {"occurred_at", columns_.OccurredAt()},
                                  {"type_c", TypeOf("c.", types)},
                                  {"type_f", TypeOf("f.", types)},
                                  {"retry", Retry()}});
  }

  // Of rows that are published or leased, others take care.
  ParkedQueueForm Queue() const {
    const std::string key = columns_.AggregateId("q.");
    return {.table = relation_,
            .key = key,
            .aggregate_id = key,
            .of = "q.published_at IS NULL" + TypeOf("q.", "2"),
            .order = key,
            .times = "q.next_retry_at",
            .behind_time = ">= 'infinity'",
            .still = " AND q.published_at IS NULL",
            .parked = Fill(kIsParked),
            .slice = "",
            .lock = "FOR SHARE",
            .freed = "NULL",
            .free = ", " + std::string(kFree)};
  }

 private:
  std::string TypeOf(const char* alias, std::string_view types) const {
    if (!typed_) return "";
    return " AND " + (alias + columns_.aggregate_type.name) + " = ANY($" + std::string(types) + ")";
  }

  std::string Predecessor(std::string_view types) const {
    if (!ordered_) return "0::bigint";
    const std::string_view unparked_p =
        parked_blocks_ ? ""
                       : " AND (p.next_retry_at IS NULL OR "
                         "p.lock_token IS NOT NULL AND p.next_retry_at < 'infinity')";
    return publisher::Fill(kPredecessor, {{"table", relation_},
                                          {"key_c", columns_.AggregateId("c.")},
                                          {"key_p", columns_.AggregateId("p.")},
                                          {"type_p", TypeOf("p.", types)},
                                          {"unparked_p", unparked_p}});
  }

  // NULL for a row that is leased.
  std::string OfUnleased(std::string_view types) const {
    return "CASE WHEN c.lock_token IS NULL THEN " + Predecessor(types) + " END";
  }

  std::string Candidate(const std::string& predecessor) const {
    return publisher::Fill(kColumns, {{"key_c", columns_.AggregateId("c.")},
                                      {"payload_name", columns_.payload.name},
                                      {"attributes_name", columns_.attributes.name},
                                      {"predecessor", predecessor}});
  }

  const std::string relation_;
  const OutboxColumns& columns_;
  const bool ordered_;
  const bool parked_blocks_;
  const bool typed_;
};

void FillClaim(const Templates& templates, TableOutboxSql* sql) {
  const std::string ranges(kRanges);
  const std::string waits(kWaits);
  sql->waiting = templates.Fill(
      "SELECT w.*" + ranges + "SELECT {columns_or_lease}" + waits +
          " AND (c.lock_token IS NULL OR c.lock_token <> $5) AND {key_c} <> ALL($4){type_c} "
          "ORDER BY c.seq LIMIT $3) AS w LIMIT $3",
      "6");
  sql->next_waiting = templates.Fill(
      "SELECT w.seq" + ranges + "SELECT c.seq" + waits +
      " AND (c.lock_token IS NULL OR c.lock_token <> $3) ORDER BY c.seq LIMIT 1) AS w LIMIT 1");
  sql->due = templates.Fill(
      "SELECT {columns}, {begins_run} FROM {table} c WHERE c.published_at IS NULL AND c.lock_token "
      "IS NULL "
      "AND c.next_retry_at > '-infinity' AND c.next_retry_at <= now(){type_c} "
      "ORDER BY c.next_retry_at LIMIT $1",
      "2");
  sql->followers = templates.Fill(
      "SELECT f.ctid, f.seq, k.key, f.payload, f.attributes, f.behind "
      "FROM unnest($1, $2) AS k(key, after) CROSS JOIN LATERAL (SELECT f.ctid, f.seq, "
      "f.{payload_name} AS payload, f.{attributes_name} AS attributes, "
      "f.next_retry_at = 'infinity' AND f.publish_attempts = 0 AS behind FROM "
      "{table} f WHERE {key_f} = k.key AND f.seq > k.after "
      "AND f.published_at IS NULL{type_f} ORDER BY {key_f}, f.seq LIMIT $4) AS f LIMIT $3",
      "5");
  sql->first_open = templates.Fill(
      "SELECT k.key, f.seq, f.tid, f.leased FROM unnest($1, $2) AS k(key, after) CROSS JOIN "
      "LATERAL (SELECT f.seq, f.ctid AS tid, f.lock_token IS NOT NULL AS leased FROM {table} f "
      "WHERE {key_f} = k.key AND f.seq > k.after AND f.published_at IS NULL{type_f} "
      "AND CASE WHEN f.next_retry_at IS NULL THEN true ELSE f.next_retry_at <= clock_timestamp() "
      "END "
      "ORDER BY {key_f}, f.seq LIMIT 1) AS f",
      "3");
  sql->lock_behind = templates.Fill(
      "SELECT seq, ctid FROM {table} WHERE ctid = ANY($1) AND CASE WHEN {unleased} "
      "THEN {behind} ELSE false END FOR UPDATE SKIP LOCKED");
  sql->lock = templates.Fill(
      "SELECT seq, ctid FROM {table} WHERE ctid = ANY($1) AND CASE WHEN {unleased} "
      "THEN next_retry_at IS NULL OR next_retry_at <= now() ELSE false END FOR UPDATE SKIP LOCKED");
  sql->lease = templates.Fill(
      "UPDATE {table} SET lock_token = $2, locked_at = now(), next_retry_at = "
      "CASE WHEN next_retry_at IS NULL THEN NULL ELSE timestamptz '-infinity' END "
      "WHERE ctid = ANY($1) RETURNING seq, {id}, {aggregate_type}, {aggregate_id}, {event_type}, "
      "{version}, {schema_version}, {payload}, {attributes}, {occurred_at}, publish_attempts, "
      "next_retry_at IS NOT NULL, ctid");
}

void FillSettle(const Templates& templates, TableOutboxSql* sql) {
  const std::string confirmed =
      "SET published_at = now(), {free}, next_retry_at = NULL, "
      "last_error = NULL";
  sql->confirm = templates.Fill("UPDATE {table} " + confirmed +
                                " WHERE {id} = ANY(ARRAY(SELECT unnest($1)::uuid)) AND {ours}");
  // Each row is read where it was. Nothing but its place joins it: what else it must be stands in a
  // CASE, which no index fits.
  sql->confirm_at =
      templates.Fill("UPDATE {table} AS o " + confirmed +
                     " FROM unnest($1, $3) AS w(event, place) WHERE o.ctid = w.place "
                     "AND CASE WHEN o.{id} = w.event::uuid THEN {ours} ELSE false END");
  // One that postbox.republish has queued was published.
  sql->expire = templates.Fill(
      "UPDATE {table} SET published_at = CASE WHEN {republished} THEN now() ELSE '-infinity' END, "
      "{free}, next_retry_at = NULL, last_error = CASE WHEN {republished} THEN NULL ELSE 'expired' "
      "END WHERE {id} = ANY(ARRAY(SELECT unnest($1)::uuid)) AND {ours} "
      "RETURNING {id}::text, last_error IS NOT NULL");
  sql->release = templates.Fill(
      "UPDATE {table} SET {free}, {due_again} "
      "WHERE {id} = ANY(ARRAY(SELECT unnest($1)::uuid)) AND {ours}");
  sql->release_behind = templates.Fill(
      "UPDATE {table} SET {free}, next_retry_at = 'infinity', "
      "publish_attempts = 0 WHERE {id} = ANY(ARRAY(SELECT unnest($1)::uuid)) AND {ours}");
  sql->park = templates.Fill("UPDATE {table} SET {free}, {retry} WHERE {id} = $1::uuid AND {ours}");
  sql->park_seq =
      templates.Fill("UPDATE {table} SET {free}, {retry} WHERE seq = $1 AND lock_token = $2");
  sql->park_unreadable = templates.Fill(
      "UPDATE {table} SET {free}, publish_attempts = publish_attempts + 1, last_error = $2, "
      "next_retry_at = CASE WHEN publish_attempts + 1 >= $3 THEN 'infinity' ELSE now() + "
      "make_interval(secs => least($4 * 2 ^ least(publish_attempts, 60), $5)) END "
      "WHERE ctid = ANY($1) AND CASE WHEN {unleased} THEN true ELSE false END RETURNING seq");
}

void FillMaintain(const Templates& templates, TableOutboxSql* sql) {
  // What cannot end takes no room from what may, however much of it is written.
  const std::string may_end =
      "CASE WHEN c.lock_token IS NULL OR " + std::string(kOld) + " OR " + std::string(kTimeless) +
      " THEN true ELSE left(c.lock_token, 8) = 'postbox-' AND "
      "octet_length(c.lock_token) = " +
      std::to_string(kLockTokenSize - 1) + " AND c.lock_token <> ALL($6) END";
  const std::string lease = "SELECT c.ctid, c.seq, c.lock_token, " + std::string(kOld) +
                            " AS old, " + std::string(kTimeless) + " AS timeless, c.next_retry_at";
  sql->leases = templates.Fill(
      "SELECT l.* FROM ((SELECT w.*" + std::string(kRanges) + lease + std::string(kWaits) +
      " ORDER BY c.seq LIMIT $4) AS w LIMIT $4) UNION ALL (" + lease +
      " FROM {table} c WHERE c.published_at IS NULL AND c.next_retry_at = '-infinity' AND " +
      may_end + " LIMIT $4) UNION ALL (" + lease +
      " FROM {table} c WHERE c.published_at IS NULL AND c.next_retry_at > '-infinity' AND "
      "c.next_retry_at <= now() ORDER BY c.next_retry_at LIMIT $4) UNION ALL (" +
      lease +
      " FROM {table} c WHERE c.ctid = ANY($5) AND "
      "CASE WHEN c.published_at IS NULL THEN true ELSE false END)) AS l "
      "WHERE l.lock_token IS NOT NULL OR l.next_retry_at = '-infinity'");
  sql->take_over = templates.Fill(
      "UPDATE {table} SET {free}, {due_again} WHERE ctid = ANY(ARRAY("
      "SELECT c.ctid FROM {table} c WHERE c.ctid = ANY($1) AND CASE "
      "WHEN c.published_at IS NOT NULL THEN false "
      "WHEN c.lock_token IS NULL THEN c.next_retry_at = '-infinity' "
      "ELSE c.lock_token = ANY($2) AND ($4 OR " +
      std::string(kOld) + " OR " + std::string(kTimeless) + ") END FOR UPDATE SKIP LOCKED))");
  sql->any_behind = templates.Fill(
      "SELECT FROM {table} WHERE published_at IS NULL AND next_retry_at >= 'infinity' "
      "AND publish_attempts = 0 ORDER BY next_retry_at LIMIT 1");
}

}  // namespace

TableOutboxSql MakeTableOutboxSql(const std::string& relation, const OutboxColumns& columns,
                                  bool ordered, bool parked_blocks, bool typed) {
  const Templates templates(relation, columns, ordered, parked_blocks, typed);
  TableOutboxSql sql;
  FillClaim(templates, &sql);
  FillSettle(templates, &sql);
  FillMaintain(templates, &sql);
  sql.queue = MakeParkedQueueSql(templates.Queue());
  return sql;
}

}  // namespace postbox::publisher

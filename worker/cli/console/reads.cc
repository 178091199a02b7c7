#include "worker/cli/console/reads.h"

namespace postbox::cli {
namespace {

using puller::Parameter;

// The state of publications is read once: it costs the most.
constexpr char kOverview[] = R"(
    WITH s AS MATERIALIZED (SELECT state, pending, oldest_ready FROM postbox.publication_status)
    SELECT json_build_object(
      'database', current_database(), 'role', session_user, 'at', clock_timestamp(),
      'version', (SELECT e.extversion FROM pg_extension e WHERE e.extname = 'postbox'),
      'standby', pg_is_in_recovery(),
      'known_until', CASE WHEN pg_is_in_recovery() THEN postbox.known_until() END,
      'publications', (SELECT coalesce(json_object_agg(s.state, s.n), '{}') FROM (
          SELECT s.state, count(*) AS n FROM s GROUP BY s.state) s),
      'pending', (SELECT sum(s.pending)::text FROM s),
      'oldest_ready_seconds', (SELECT extract(epoch FROM max(s.oldest_ready))::float8 FROM s),
      'subscriptions', (SELECT count(*) FROM postbox.subscription),
      'in_hand', (SELECT sum(t.in_hand)::text FROM postbox.subscription_status t),
      'projections', (SELECT count(*) FROM postbox.projection),
      'paused', (SELECT count(*) FROM (
          SELECT paused_until FROM postbox.publication UNION ALL
          SELECT paused_until FROM postbox.subscription UNION ALL
          SELECT paused_until FROM postbox.projection UNION ALL
          SELECT paused_until FROM postbox.handler) x WHERE x.paused_until > now()),
      'parked_keys_of_inboxes', (SELECT count(*) FROM (
          SELECT FROM postbox.parked_key LIMIT $1) x),
      'dead_letters', (SELECT count(*) FROM (SELECT FROM postbox.dead_letter LIMIT $1) x),
      'counted_to', $1::int)::text)";

constexpr char kFindings[] = R"(
    SELECT json_build_object('rows', coalesce(json_agg(to_json(f)), '[]'), 'next', NULL)::text
    FROM (SELECT f."check", f.status, f.subject, f.detail, f.remedy
          FROM postbox.doctor() f ORDER BY f.status = 'ok', f.status <> 'error', f."check"
          LIMIT 1000) f)";

constexpr char kKeysOfInboxes[] = R"(
    WITH page AS (
      SELECT 'inbox' AS side, k.inbox::text AS relation, k.aggregate_id, d.event_id AS event_id,
             d.event_type, d.attempts, k.next_retry_at, d.sqlstate, left(d.error, 500) AS error,
             k.parked_at, k.retries, d.id::text AS dead_letter, (
               SELECT count(*) FROM (
                 SELECT FROM postbox.dead_letter f
                 WHERE f.inbox = k.inbox AND f.aggregate_id = k.aggregate_id AND f.parked
                   AND f.id > d.id LIMIT 1000) x)::text AS waiting,
             postbox.may_act_on(k.inbox) AS may_act,
             row_number() OVER (ORDER BY k.inbox, k.aggregate_id) AS n
      FROM (SELECT * FROM postbox.parked_key k
            WHERE $1::text IS NULL OR (k.inbox::oid, k.aggregate_id) > ((
              SELECT i.relation::oid FROM postbox.inbox i WHERE i.relation::text = $1), $2)
            ORDER BY k.inbox, k.aggregate_id LIMIT $3::int + 1) k
      LEFT JOIN LATERAL (
        SELECT f.* FROM postbox.dead_letter f
        WHERE f.inbox = k.inbox AND f.aggregate_id = k.aggregate_id AND f.parked
        ORDER BY f.id LIMIT 1) d ON true)
    SELECT json_build_object(
      'rows', coalesce(json_agg(to_jsonb(p) - 'n' ORDER BY p.n) FILTER (WHERE p.n <= $3), '[]'),
      'next', CASE WHEN max(p.n) > $3 THEN (
        SELECT json_build_object('side', 'inbox', 'after_relation', l.relation,
                                 'after_key', l.aggregate_id) FROM page l WHERE l.n = $3) END)::text
    FROM page p)";

constexpr char kKeysOfOutboxes[] = R"(
    WITH page AS (
      SELECT k.*, row_number() OVER (ORDER BY k.relation, k.aggregate_id COLLATE "C") AS n
      FROM (SELECT k.side, k.relation::text, k.aggregate_id, k.first_event_id AS event_id,
                   k.event_type, k.attempts, k.next_retry_at, left(k.last_error, 500) AS error,
                   k.waiting::text, postbox.may_act_on(k.relation) AS may_act
            FROM postbox.paused_keys k WHERE k.side = 'outbox') k
      WHERE $1::text IS NULL
         OR (k.relation, k.aggregate_id COLLATE "C") > ($1, $2::text COLLATE "C")
      ORDER BY k.relation, k.aggregate_id COLLATE "C" LIMIT $3::int + 1)
    SELECT json_build_object(
      'rows', coalesce(json_agg(to_jsonb(p) - 'n' ORDER BY p.n) FILTER (WHERE p.n <= $3), '[]'),
      'next', CASE WHEN max(p.n) > $3 THEN (
        SELECT json_build_object('side', 'outbox', 'after_relation', l.relation,
                                 'after_key', l.aggregate_id) FROM page l WHERE l.n = $3) END)::text
    FROM page p)";

// What is looked at: $1 is the inbox, $2 the id before which a page begins. $3 to $10: the filter.
// An operator may not look up names in the schema of an inbox, so names are compared as texts.
#define POSTBOX_SCANNED                                                                 \
  "SELECT d.id, d.inbox, d.event_type, d.aggregate_type, d.aggregate_id, d.sqlstate, "  \
  "d.error, d.failed_at, d.parked, d.outcome FROM postbox.dead_letter d "               \
  "WHERE ($1::text IS NULL OR d.inbox = (SELECT i.relation FROM postbox.inbox i "       \
  "WHERE i.relation::text = $1)) AND d.id < coalesce($2::bigint, 9223372036854775807) " \
  "ORDER BY d.id DESC"
#define POSTBOX_FILTER                                                                     \
  "($3::text IS NULL OR s.event_type = $3) AND ($4::text IS NULL OR s.aggregate_id = $4) " \
  "AND ($5::text IS NULL OR s.sqlstate = $5) AND ($6::text IS NULL OR "                    \
  "strpos(lower(s.error), lower($6)) > 0) AND ($7::timestamptz IS NULL OR "                \
  "s.failed_at >= $7) AND ($8::timestamptz IS NULL OR s.failed_at < $8) AND "              \
  "($9::boolean IS NULL OR s.parked = $9) AND ($10::postbox.outcome IS NULL OR "           \
  "s.outcome = $10)"

// `scanned` is read once, and no further than `page` needs it; where that finds too little, to its
// end, which is where the next page begins.
constexpr char kDeadLetters[] = "WITH scanned AS MATERIALIZED (SELECT s.id, (" POSTBOX_FILTER
                                ") AS matches FROM (" POSTBOX_SCANNED R"( LIMIT 20000) s),
    page AS MATERIALIZED (SELECT s.id, row_number() OVER () AS n FROM scanned s WHERE s.matches
      LIMIT $11::int + 1)
    SELECT json_build_object('rows', (
      SELECT coalesce(json_agg(to_jsonb(r) - 'number' ORDER BY r.number DESC), '[]')
      FROM (
        SELECT d.id::text, d.id AS number, d.inbox::text, d.event_id, d.event_type,
               d.aggregate_type, d.aggregate_id, d.version::text, d.sqlstate,
               left(d.error, 500) AS error, d.failed_at, d.attempts, d.outcome, d.parked,
               postbox.may_act_on(d.inbox) AS may_act,
               octet_length(d.payload) AS bytes
        FROM page p JOIN postbox.dead_letter d ON d.id = p.id WHERE p.n <= $11) r),
      'next', CASE WHEN (SELECT count(*) FROM page) > $11
        THEN (SELECT json_build_object('after', p.id::text) FROM page p WHERE p.n = $11)
        ELSE (SELECT json_build_object('after', min(s.id)::text) FROM scanned s
              HAVING count(*) = 20000)
        END)::text)";

constexpr char kCountDeadLetters[] =
    "SELECT json_build_object('count', count(*), 'counted_to', $11::int)::text FROM (SELECT FROM "
    "(" POSTBOX_SCANNED ") s WHERE " POSTBOX_FILTER " LIMIT $11::int) c";

constexpr char kDeadLetter[] = R"(
    SELECT json_build_object(
      'id', d.id::text, 'inbox', d.inbox::text, 'event_id', d.event_id,
      'event_type', d.event_type, 'aggregate_type', d.aggregate_type,
      'aggregate_id', d.aggregate_id, 'version', d.version::text,
      'attributes', )" POSTBOX_ATTRIBUTES("d") R"(,
      'occurred_at', d.occurred_at, 'sqlstate', d.sqlstate, 'error', d.error,
      'failed_at', d.failed_at, 'attempts', d.attempts, 'outcome', d.outcome,
      'parked', d.parked, 'may_act', postbox.may_act_on(d.inbox), 'raw', d.raw,
      'bytes', octet_length(d.payload),
      'payload_hex', encode(substring(d.payload FOR $2::int), 'hex'))::text
    FROM postbox.dead_letter d WHERE d.id = $1::bigint)";

constexpr char kActions[] = R"(
    WITH page AS (
      SELECT a.*, row_number() OVER (ORDER BY a.id DESC) AS n
      FROM (SELECT * FROM postbox.console_action a
            WHERE a.id < coalesce($1::bigint, 9223372036854775807)
            ORDER BY a.id DESC LIMIT $2::int + 1) a)
    SELECT json_build_object(
      'rows', coalesce(json_agg(json_build_object(
        'id', p.id::text, 'at', p.acted_at, 'role', p.acted_by, 'action', p.action,
        'subject', p.subject, 'filter', p.filter, 'reason', p.reason,
        'affected', p.affected::text) ORDER BY p.n) FILTER (WHERE p.n <= $2), '[]'),
      'next', CASE WHEN max(p.n) > $2 THEN (
        SELECT json_build_object('after', l.id::text) FROM page l WHERE l.n = $2) END)::text
    FROM page p)";

std::vector<Parameter> LetterFilter(const Arguments& arguments) {
  std::vector<Parameter> values;
  for (const char* name : {"inbox", "after", "event_type", "key", "sqlstate", "error", "from", "to",
                           "parked", "outcome"}) {
    values.push_back(arguments.Parameter(name));
  }
  return values;
}

}  // namespace

Answer ReadOverview(Session* session, const Arguments& /*arguments*/) {
  return Give(session->Read(kOverview, {Number(kMostCounted)}));
}

Answer ReadFindings(Session* session, const Arguments& /*arguments*/) {
  return Give(session->Read(kFindings, {}));
}

Answer ReadParkedKeys(Session* session, const Arguments& arguments) {
  const std::string side = arguments.Text("side").value_or("inbox");
  if (side != "inbox" && side != "outbox") return Refuse(400, "side is inbox or outbox");
  return Give(session->Read(side == "inbox" ? kKeysOfInboxes : kKeysOfOutboxes,
                            {arguments.Parameter("after_relation"),
                             arguments.Parameter("after_key"), Number(arguments.Limit())}));
}

Answer ReadDeadLetters(Session* session, const Arguments& arguments) {
  std::vector<Parameter> values = LetterFilter(arguments);
  values.push_back(Number(arguments.Limit()));
  return Give(session->Read(kDeadLetters, values));
}

Answer CountDeadLetters(Session* session, const Arguments& arguments) {
  std::vector<Parameter> values = LetterFilter(arguments);
  values.push_back(Number(kMostCounted));
  return Give(session->Read(kCountDeadLetters, values));
}

Answer ReadDeadLetter(Session* session, const Arguments& arguments) {
  if (!arguments.Text("id")) return Refuse(400, "id is missing");
  const puller::QueryResult result =
      session->Read(kDeadLetter, {arguments.Parameter("id"), Number(kMostPayload)});
  if (!result.ok() || result.rows() != 1) return Give(result);
  JsonValue letter = JsonValue::parse(result.text(0, 0), nullptr, /*allow_exceptions=*/false);
  if (letter.is_discarded()) return Refuse(500, "the database did not return JSON");
  DecodePayload(&letter);
  return Give(letter);
}

Answer ReadActions(Session* session, const Arguments& arguments) {
  return Give(session->Read(kActions, {arguments.Parameter("after"), Number(arguments.Limit())}));
}

}  // namespace postbox::cli

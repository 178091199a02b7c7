#include <algorithm>
#include <iterator>

#include "worker/cli/console/reads.h"
#include "worker/cli/console/session_rights.h"

namespace postbox::cli {
namespace {

// `k` is what a list is paged by. A list whose rows are costly makes only those of the page: $1 is
// the `k` behind which it begins, $2 the most rows.
struct List {
  const char* name;
  const char* sql;
};
constexpr List kLists[] = {
    {"publications", R"(
        SELECT s.publication AS k, s.publication, s.outbox::text, s.topic, s.state,
               s.pending::text, s.ready::text, s.parked::text, s.delayed::text, s.expired::text,
               extract(epoch FROM s.oldest_pending)::float8 AS oldest_pending_seconds,
               extract(epoch FROM s.oldest_ready)::float8 AS oldest_ready_seconds, s.retry_at,
               s.suspended_since, s.last_error, s."position"::text, s.leases,
               s.sent_again_at_most::text, s.sent_again_at, s.republishing::text,
               (p.paused_until > now()) IS TRUE AS paused, p.paused_reason, p.paused_until,
               o.kind, p.lanes, p.wanted_lanes, postbox.may_act_on(s.outbox) AS may_act,
               )" POSTBOX_SEES_METRICS R"( AS reads_metrics,
               clock_timestamp() AS at
        FROM (SELECT b.* FROM postbox.publication b
              WHERE $1::text IS NULL OR b.name COLLATE "C" > $1
              ORDER BY b.name COLLATE "C" LIMIT $2::int + 1) p
        CROSS JOIN LATERAL postbox.list_publication_status(p.name) s
        LEFT JOIN postbox.outbox o ON o.relation = s.outbox)"},
    {"republishes", R"(
        SELECT s.publication AS k, s.publication, s.outbox::text, s.republishing::text, s.state,
               s.last_error, postbox.may_act_on(s.outbox) AS may_act
        FROM postbox.publication_status s WHERE s.republishing > 0)"},
    {"outboxes", R"(
        SELECT s.outbox::text AS k, s.outbox::text, s.kind, s.retention, s.publications::text,
               s.problem, s.remedy, postbox.may_act_on(s.outbox) AS may_act
        FROM postbox.outbox_status s)"},
    {"subscriptions", R"(
        SELECT b.name AS k, b.name AS subscription, b.inbox::text,
               b.subscription AS pubsub_subscription, (b.paused_until > now()) IS TRUE AS paused,
               b.paused_reason, b.paused_at, b.paused_until, count(t.*) AS pullers,
               sum(t.in_hand)::text AS in_hand, sum(t.events_per_second) AS events_per_second,
               extract(epoch FROM max(t.lag))::float8 AS lag_seconds, max(t.behind_at) AS behind_at,
               postbox.may_act_on(b.inbox) AS may_act
        FROM postbox.subscription b
        LEFT JOIN postbox.subscription_status t ON t.subscription = b.name GROUP BY b.name)"},
    {"pullers", R"(
        SELECT t.subscription || chr(31) || t.puller AS k, t.subscription, t.puller, t.started_at,
               t.last_seen, t.stream, t.stream_since, t.stream_error, t.applied::text,
               t.duplicates::text, t.stale::text, t.dead_letters::text, t.parked::text,
               t.failures::text, t.received::text, t.nacked::text, t.in_hand::text, t.waiting,
               t.oldest_waiting, t.retrying_since, t.next_try, t.last_error, t.last_error_at,
               t.suspended_types, t.suspended_since, t.suspended_error, t.unanswered_since,
               extract(epoch FROM t.lag)::float8 AS lag_seconds, t.events_per_second, t.catch_up
        FROM postbox.subscription_status t)"},
    {"inboxes", R"(
        SELECT i.relation::text AS k, i.relation::text AS inbox, i.retention,
               (SELECT array_agg(w.problem) FROM postbox.inbox_problem w
                WHERE w.inbox = i.relation) AS problems,
               postbox.may_act_on(i.relation) AS may_act
        FROM postbox.inbox i)"},
    {"projections", R"(
        SELECT p.name AS k, p.name AS projection, p.inbox::text, p.target::text, s.event_types,
               s.waiting::text, s.versions_waiting::text, s.oldest_waiting, s.suspended_types,
               s.missing_fields, (p.paused_until > now()) IS TRUE AS paused, p.paused_reason,
               p.paused_at, p.paused_until, postbox.may_act_on(p.inbox) AS may_act
        FROM postbox.projection p JOIN postbox.projection_status s ON s.projection = p.id)"},
    {"handlers", R"(
        SELECT h.name AS k, h.name AS handler, h.inbox::text, h.event_types,
               (h.paused_until > now()) IS TRUE AS paused, h.paused_reason, h.paused_at,
               h.paused_until, postbox.may_act_on(h.inbox) AS may_act
        FROM postbox.handler h)"},
    {"workers", R"(
        SELECT concat_ws(chr(31), w.database, to_char(w.ordinal, 'FM00000')) AS k, w.pid,
               w.database, w.ordinal, w.state, w.started_at
        FROM postbox.workers w)"},
    {"backfills", R"(
        SELECT s.backfill AS k, s.backfill, s.outbox::text, s.relation::text, s.owner::text,
               s.state, s.reason, s.row_count::text, s.rows_estimated::text, s.rows_per_second,
               extract(epoch FROM s.time_left_estimated)::float8 AS seconds_left_estimated,
               s.paused_at, s.paused_until, s.started_at, s.updated_at, s.ended_at, s.last_error,
               s.last_error_at, postbox.may_act_for(s.owner) AS may_act
        FROM postbox.backfill_status s)"},
    {"rebuilds", R"(
        SELECT s.projection AS k, s.projection, s.target::text, s.state, s.reason, s.source,
               s.started_at, s.ended_at, s.received::text, s.applied::text, s.stale::text,
               s.failures::text, s.events_per_second, s.caught_up, s.last_error, s.last_error_at,
               extract(epoch FROM s.lag)::float8 AS lag_seconds,
               extract(epoch FROM s.time_left_estimated)::float8 AS seconds_left_estimated,
               s.shadow_rows_estimated::text, s.lagging::text, s.lagging_key, s.updated::text,
               s.inserted::text, s.deleted::text, s.subscription, s.pubsub_subscription,
               extract(epoch FROM s.locked_for)::float8 AS locked_for_seconds,
               (SELECT bool_or(postbox.may_act_on(r.inbox)) FROM postbox.rebuild r
                WHERE r.projection = s.projection) AS may_act
        FROM postbox.rebuild_status s)"},
    {"audits", R"(
        SELECT a.subscription || chr(31) || a.source AS k, a.subscription, a.source, a.status,
               a.watermark, a.checked_at, a.findings, a.detail
        FROM postbox.audit a)"},
};

}  // namespace

const char* ListQuery(const std::string& name) {
  const auto* found = std::find_if(std::begin(kLists), std::end(kLists),
                                   [&](const List& list) { return name == list.name; });
  return found == std::end(kLists) ? nullptr : found->sql;
}

Answer ReadList(Session* session, const char* query, const Arguments& arguments) {
  const std::string sql = std::string(
                              "WITH page AS (SELECT q.*, row_number() OVER (ORDER BY q.k "
                              "COLLATE \"C\") AS n FROM (") +
                          query + R"() q WHERE $1::text IS NULL OR q.k COLLATE "C" > $1
      ORDER BY q.k COLLATE "C" LIMIT $2::int + 1)
    SELECT json_build_object(
      'rows', coalesce(json_agg(to_jsonb(p) - 'n' - 'k' ORDER BY p.n) FILTER (WHERE p.n <= $2),
                       '[]'),
      'next', CASE WHEN max(p.n) > $2 THEN (
        SELECT json_build_object('after', l.k) FROM page l WHERE l.n = $2) END)::text
    FROM page p)";
  return Give(session->Read(sql, {arguments.Parameter("after"), Number(arguments.Limit())}));
}

}  // namespace postbox::cli

#include "worker/cli/console/actions.h"

#include <map>
#include <utility>

namespace postbox::cli {
namespace {

using puller::Parameter;
using puller::QueryResult;

// `a` has name, reason and until. The names of an outbox and an inbox stand for all publications
// and all subscriptions of it.
const std::map<std::pair<std::string, std::string>, const char*>& Changes() {
  static const auto& changes = *new std::map<std::pair<std::string, std::string>, const char*>{
      {{"pause", "publication"},
       "SELECT postbox.pause_publication(a.name, a.reason, a.until) FROM a"},
      {{"resume", "publication"}, "SELECT postbox.resume_publication(a.name) FROM a"},
      {{"pause", "outbox"},
       "SELECT postbox.pause_publication(p.name, a.reason, a.until) FROM a "
       "JOIN postbox.publication p ON p.outbox::text = a.name"},
      {{"resume", "outbox"},
       "SELECT postbox.resume_publication(p.name) FROM a "
       "JOIN postbox.publication p ON p.outbox::text = a.name"},
      {{"pause", "subscription"},
       "SELECT postbox.pause_subscription(a.name, a.reason, a.until) FROM a"},
      {{"resume", "subscription"}, "SELECT postbox.resume_subscription(a.name) FROM a"},
      {{"pause", "inbox"},
       "SELECT postbox.pause_subscription(s.name, a.reason, a.until) FROM a "
       "JOIN postbox.subscription s ON s.inbox::text = a.name"},
      {{"resume", "inbox"},
       "SELECT postbox.resume_subscription(s.name) FROM a "
       "JOIN postbox.subscription s ON s.inbox::text = a.name"},
      {{"pause", "projection"},
       "SELECT postbox.pause_projection(a.name, a.reason, a.until) FROM a"},
      {{"resume", "projection"}, "SELECT postbox.resume_projection(a.name) FROM a"},
      {{"pause", "handler"}, "SELECT postbox.pause_handler(a.name, a.reason, a.until) FROM a"},
      {{"resume", "handler"}, "SELECT postbox.resume_handler(a.name) FROM a"},
      {{"pause", "backfill"}, "SELECT postbox.pause_backfill(a.name, a.reason, a.until) FROM a"},
      {{"resume", "backfill"}, "SELECT postbox.resume_backfill(a.name) FROM a"},
      {{"cancel", "backfill"}, "SELECT postbox.cancel_backfill(a.name, a.reason) FROM a"},
      {{"cancel", "rebuild"}, "SELECT postbox.cancel_rebuild(a.name, a.reason) FROM a"},
  };
  return changes;
}

// The ends of the statements: `n` counts what was done. $1 is the action. Without an outbox or an
// inbox of the name there is no row.
constexpr char kChangeBegin[] =
    "WITH a AS MATERIALIZED (SELECT $3::text AS name, $4::text AS reason, "
    "$5::timestamptz AS until), done AS MATERIALIZED (";
constexpr char kChangeEnd[] =
    "), n AS MATERIALIZED (SELECT count(*) AS n FROM done) SELECT json_build_object('affected', "
    "n.n::text, 'line', postbox.record_console_action($1, $2 || ' ' || $3, n.n, reason => $4, "
    "filter => CASE WHEN $5::timestamptz IS NULL THEN NULL ELSE jsonb_build_object('until', "
    "$5::timestamptz) END)::text)::text FROM n WHERE n.n > 0";

// $1 the publication, $2 the reason.
constexpr char kCancelRepublish[] = R"(
    WITH n AS MATERIALIZED (SELECT postbox.cancel_republish($1) AS n)
    SELECT json_build_object('affected', n.n::text, 'line', postbox.record_console_action(
      'cancel', 'republish ' || $1, n.n, reason => $2)::text)::text FROM n)";
// $1 the projection, $2 the reason. There is a line only if the rows were replaced.
constexpr char kFinishRebuild[] = R"(
    WITH r AS MATERIALIZED (SELECT postbox.finish_rebuild($1) AS result)
    SELECT json_build_object('result', r.result,
      'affected', CASE r.result WHEN 'done' THEN '1' ELSE '0' END,
      'line', CASE r.result WHEN 'done' THEN postbox.record_console_action(
        'finish', 'rebuild ' || $1, 1, reason => $2)::text END)::text FROM r)";

// Events of an outbox: $2 the outbox, $3 the ids, $4 the reason.
constexpr char kRedriveEvents[] = R"(
    WITH done AS MATERIALIZED (
      SELECT e.id, postbox.redrive(o.relation, e.id) AS n
      FROM postbox.outbox o, unnest($3::uuid[]) AS e(id) WHERE o.relation::text = $2),
    n AS MATERIALIZED (SELECT coalesce(sum(d.n), 0)::bigint AS n FROM done d)
    SELECT json_build_object('affected', n.n::text, 'line', postbox.record_console_action(
      $1, 'outbox ' || $2, n.n, reason => $4,
      filter => jsonb_build_object('event_ids', to_jsonb($3::uuid[])))::text)::text FROM n
    WHERE EXISTS (SELECT FROM postbox.outbox o WHERE o.relation::text = $2))";
constexpr char kDiscardEvents[] = R"(
    WITH done AS MATERIALIZED (
      SELECT e.id, postbox.discard(o.relation, e.id) AS was
      FROM postbox.outbox o, unnest($3::uuid[]) AS e(id) WHERE o.relation::text = $2),
    n AS MATERIALIZED (SELECT count(*) FILTER (WHERE d.was) AS n FROM done d)
    SELECT json_build_object('affected', n.n::text, 'line', postbox.record_console_action(
      $1, 'outbox ' || $2, n.n, reason => $4,
      filter => jsonb_build_object('event_ids', to_jsonb($3::uuid[])))::text)::text FROM n
    WHERE EXISTS (SELECT FROM postbox.outbox o WHERE o.relation::text = $2))";

// Dead letters: $2 the ids, $3 the reason, $4 whether a hole is accepted.
constexpr char kRedriveLetters[] = R"(
    WITH done AS MATERIALIZED (
      SELECT i.id, postbox.redrive_dead_letter(i.id) AS outcome
      FROM (SELECT u.id FROM unnest($2::bigint[]) AS u(id) ORDER BY u.id) i
      WHERE $4::boolean IS NOT NULL),
    n AS MATERIALIZED (SELECT count(*) AS n, json_agg(json_build_object(
      'id', d.id::text, 'outcome', d.outcome)) AS outcomes FROM done d)
    SELECT json_build_object('affected', n.n::text, 'outcomes', n.outcomes,
      'line', postbox.record_console_action($1, 'dead letters', n.n, reason => $3,
        filter => jsonb_build_object('ids', to_jsonb($2::bigint[])))::text)::text FROM n)";
constexpr char kDiscardLetters[] = R"(
    WITH done AS MATERIALIZED (
      SELECT i.id, postbox.discard_dead_letter(i.id, $3, $4::boolean) AS was
      FROM (SELECT u.id FROM unnest($2::bigint[]) AS u(id) ORDER BY u.id) i),
    n AS MATERIALIZED (SELECT count(*) FILTER (WHERE d.was) AS n FROM done d)
    SELECT json_build_object('affected', n.n::text,
      'line', postbox.record_console_action($1, 'dead letters', n.n, reason => $3,
        filter => jsonb_build_object('ids', to_jsonb($2::bigint[])))::text)::text FROM n)";

// Single values that lists are made of become an array of Postgres; the ids have no quotes.
std::optional<Parameter> IdsMember(const JsonValue& order, const char* name,
                                   const char* characters) {
  const auto ids = ListMember(order, name);
  if (!ids) return std::nullopt;
  std::string list = "{";
  for (const std::string& id : *ids) {
    if (id.empty() || id.find_first_not_of(characters) != std::string::npos) return std::nullopt;
    list += (list.size() > 1 ? "," : "") + id;
  }
  return Parameter::Text(list + "}");
}

Parameter Member(const JsonValue& order, const char* name) {
  return Parameter::Text(TextMember(order, name));
}

std::string AcceptsHole(const JsonValue& order) {
  return order.value("accept_hole", JsonValue(false)) == JsonValue(true) ? "true" : "false";
}

}  // namespace

Answer ChangeState(Session* session, const JsonValue& order) {
  const std::string action = TextMember(order, "action").value_or("");
  const std::string kind = TextMember(order, "kind").value_or("");
  const auto found = Changes().find({action, kind});
  const bool cancels_republish = action == "cancel" && kind == "republish";
  const bool finishes = action == "finish" && kind == "rebuild";
  if (found == Changes().end() && !cancels_republish && !finishes) {
    return Refuse(400, "there is no such action");
  }
  if (!TextMember(order, "name")) return Refuse(400, "name is missing");
  if (action != "resume" && !TextMember(order, "reason")) {
    return Refuse(400, "reason is missing: it tells others why");
  }
  const std::vector<Parameter> name_and_reason = {Member(order, "name"), Member(order, "reason")};
  if (cancels_republish) return Give(session->Act(kCancelRepublish, name_and_reason));
  if (finishes) return Give(session->ActLong(kFinishRebuild, name_and_reason));
  return Give(session->Act(std::string(kChangeBegin) + found->second + kChangeEnd,
                           {Parameter::Text(action), Parameter::Text(kind), Member(order, "name"),
                            Member(order, "reason"), Member(order, "until")}));
}

Answer ActOnEvents(Session* session, const JsonValue& order) {
  const std::string action = TextMember(order, "action").value_or("");
  if (action != "redrive" && action != "discard") return Refuse(400, "there is no such action");
  const bool discard = action == "discard";
  const Parameter reason = Member(order, "reason");
  if (discard && !reason.value) return Refuse(400, "reason is missing: it tells others why");
  if (const auto outbox = TextMember(order, "outbox")) {
    const auto ids = IdsMember(order, "event_ids", "0123456789abcdefABCDEF-");
    if (!ids) return Refuse(400, "event_ids are 1 to 200 uuids");
    return Give(session->Act(discard ? kDiscardEvents : kRedriveEvents,
                             {Parameter::Text(action), Parameter::Text(*outbox), *ids, reason}));
  }
  const auto ids = IdsMember(order, "dead_letters", "0123456789");
  if (!ids) return Refuse(400, "dead_letters are 1 to 200 ids, as texts");
  return Give(
      session->Act(discard ? kDiscardLetters : kRedriveLetters,
                   {Parameter::Text(action), *ids, reason, Parameter::Text(AcceptsHole(order))}));
}

}  // namespace postbox::cli

#include "worker/cli/console/actions.h"
#include "worker/cli/console/reads.h"

namespace postbox::cli {
namespace {

using puller::Parameter;
using puller::QueryResult;
using Clock = Confirmations::Clock;

// $1 inbox, $2 event type, $3 key, $4 SQLSTATE, $5 outcome, $6 the time before which they failed.
#define POSTBOX_MATCHING                                                   \
  "(SELECT i.relation FROM postbox.inbox i WHERE i.relation::text = $1), " \
  "event_type => $2, aggregate_id => $3, sqlstate => $4, "                 \
  "outcome => $5::postbox.outcome, failed_before => $6::timestamptz"
// No row if there is none of this name. An operator may not look up names in its schema.
constexpr char kInboxNow[] =
    "SELECT clock_timestamp()::text FROM postbox.inbox i WHERE i.relation::text = $1";
constexpr char kOutboxNow[] =
    "SELECT clock_timestamp()::text FROM postbox.outbox o WHERE o.relation::text = $1";
constexpr char kCountToRedrive[] =
    "SELECT r.remaining FROM postbox.redrive_dead_letters(" POSTBOX_MATCHING ", dry_run => true) r";
// What postbox.discard_dead_letters would delete.
constexpr char kCountToDiscard[] =
    "SELECT count(*) FROM postbox.dead_letter d WHERE d.inbox = "
    "(SELECT i.relation FROM postbox.inbox i WHERE i.relation::text = $1) "
    "AND ($2::text IS NULL OR d.event_type = $2) AND ($3::text IS NULL OR d.aggregate_id = $3) "
    "AND ($4::text IS NULL OR d.sqlstate = $4) "
    "AND ($5::text IS NULL OR d.outcome = $5::postbox.outcome) AND d.failed_at < $6::timestamptz";
constexpr char kCountParked[] =
    "SELECT count(*) FROM postbox.paused_keys k WHERE k.side = 'outbox' "
    "AND k.relation::text = $1";

// $7: the count that was confirmed; $8: the reason; $9: the filter, for the line.
constexpr char kRedriveAll[] =
    "WITH n AS MATERIALIZED (SELECT r.*, "
    "r.applied + r.without_effect + r.failed AS n FROM "
    "postbox.redrive_dead_letters(" POSTBOX_MATCHING R"(, max_events => $10::int) r)
    SELECT json_build_object('applied', n.applied::text,
      'without_effect', n.without_effect::text, 'failed', n.failed::text,
      'remaining', n.remaining::text, 'affected', n.n::text,
      'line', postbox.record_console_action('redrive', 'inbox ' || $1, n.n,
        expected => $7::bigint, reason => $8, filter => $9::jsonb)::text)::text, n.remaining
    FROM n)";
constexpr char kDiscardAll[] =
    "WITH n AS MATERIALIZED (SELECT postbox.discard_dead_letters(" POSTBOX_MATCHING
    R"(, reason => $8, accept_hole => $10::boolean) AS n)
    SELECT json_build_object('affected', n.n::text,
      'line', postbox.record_console_action('discard', 'inbox ' || $1, n.n,
        expected => $7::bigint, reason => $8, filter => $9::jsonb)::text)::text, 0
    FROM n)";
// $3: the count that was confirmed. A key may have several events, so keys are compared with keys.
constexpr char kRedriveOutbox[] = R"(
    WITH k AS MATERIALIZED (SELECT count(*) AS n FROM postbox.paused_keys k
      WHERE k.side = 'outbox' AND k.relation::text = $1),
    n AS MATERIALIZED (SELECT postbox.redrive(o.relation) AS n
      FROM postbox.outbox o, k WHERE o.relation::text = $1 AND k.n <= $3::bigint)
    SELECT (SELECT json_build_object('affected', n.n::text,
      'line', postbox.record_console_action('redrive', 'outbox ' || $1, n.n, reason => $2,
        filter => jsonb_build_object('keys', k.n))::text)::text FROM n), k.n
    FROM k)";

// The members of an order that say which dead letters it takes.
constexpr const char* kFilter[] = {"inbox", "event_type", "key", "sqlstate", "outcome", "before"};

std::vector<Parameter> FilterOf(const JsonValue& order) {
  std::vector<Parameter> values;
  for (const char* name : kFilter) values.push_back(Parameter::Text(TextMember(order, name)));
  return values;
}

// The members of a preview that say which events it counts.
constexpr const char* kSelecting[] = {"outbox", "inbox",    "event_type",
                                      "key",    "sqlstate", "outcome"};

JsonValue Kept(const JsonValue& order) {
  JsonValue kept;
  const auto keep = [&](const char* name) {
    if (const auto text = TextMember(order, name)) kept[name] = *text;
  };
  for (const char* name : {"action", "reason"}) keep(name);
  for (const char* name : kSelecting) keep(name);
  if (order.value("accept_hole", JsonValue(false)) == JsonValue(true)) kept["accept_hole"] = true;
  return kept;
}

Answer Confirm(Session* session, const JsonValue& order) {
  JsonValue answer = order;
  answer["confirmation"] = session->confirmations().Issue(Dump(order), Clock::now());
  answer["expires_in_seconds"] =
      std::chrono::duration_cast<std::chrono::seconds>(Confirmations::kLife).count();
  return Give(answer);
}

// With the count of `result`, which is a text: it may be larger than a double holds.
Answer Counted(Session* session, JsonValue order, const QueryResult& result) {
  if (!result.ok()) return Refuse(result);
  order["count"] = result.text(0, 0);
  return Confirm(session, order);
}

Answer Redriven(Session* session, JsonValue order, const QueryResult& result) {
  if (!result.ok()) return Refuse(result);
  JsonValue answer = JsonValue::parse(result.text(0, 0), nullptr, /*allow_exceptions=*/false);
  const std::string remaining = result.text(0, 1);
  if (remaining == "0" || answer.is_discarded()) return Give(result);
  order["count"] = remaining;
  answer["confirmation"] = session->confirmations().Issue(Dump(order), Clock::now());
  return Give(answer);
}

}  // namespace

Answer PreviewAll(Session* session, const JsonValue& given) {
  JsonValue order = Kept(given);
  const std::string action = TextMember(order, "action").value_or("");
  if (action != "redrive" && action != "discard") return Refuse(400, "there is no such action");
  const auto place = TextMember(order, order.contains("outbox") ? "outbox" : "inbox");
  if (!place) return Refuse(400, "inbox or outbox is missing");
  if (action == "discard" && !TextMember(order, "reason")) {
    return Refuse(400, "reason is missing: it tells others why");
  }
  for (const char* name : {"error", "from", "to", "parked"}) {
    if (given.contains(name)) {
      return Refuse(400, std::string("an action on all cannot select by ") + name +
                             ": select the dead letters, or another filter");
    }
  }
  // What is left out selects all, so a value that is no text does not count as left out.
  for (const char* name : kSelecting) {
    if (given.contains(name) && !order.contains(name)) {
      return Refuse(400, std::string(name) + " is not a text with at least one character");
    }
  }
  const bool of_outbox = order.contains("outbox");
  const QueryResult now =
      session->Read(of_outbox ? kOutboxNow : kInboxNow, {Parameter::Text(*place)});
  if (!now.ok() || now.rows() == 0) return Give(now);
  if (of_outbox) {
    if (action == "discard") return Refuse(400, "events of an outbox are discarded one by one");
    return Counted(session, order, session->Read(kCountParked, {Parameter::Text(*place)}));
  }
  order["before"] = now.text(0, 0);
  // A dry run takes no lock, but the function is one that may write.
  return Counted(session, order,
                 action == "redrive" ? session->Act(kCountToRedrive, FilterOf(order))
                                     : session->Read(kCountToDiscard, FilterOf(order)));
}

Answer ActOnAll(Session* session, const JsonValue& given) {
  const auto confirmed =
      session->confirmations().Open(TextMember(given, "confirmation").value_or(""), Clock::now());
  if (!confirmed) return Refuse(409, "the confirmation has expired or is not one: preview again");
  const JsonValue order = JsonValue::parse(*confirmed, nullptr, /*allow_exceptions=*/false);
  if (order.is_discarded()) return Refuse(500, "the confirmation cannot be read");
  const Parameter reason = Parameter::Text(TextMember(order, "reason"));
  if (const auto outbox = TextMember(order, "outbox")) {
    const std::string count = TextMember(order, "count").value_or("0");
    const QueryResult done =
        session->Act(kRedriveOutbox, {Parameter::Text(*outbox), reason, Parameter::Text(count)});
    if (!done.ok() || !done.null(0, 0)) return Give(done);
    return Refuse(409, done.text(0, 1) + " keys are parked, and " + count +
                           " were confirmed: look at them, and confirm again");
  }
  std::vector<Parameter> values = FilterOf(order);
  values.push_back(Parameter::Text(TextMember(order, "count")));
  values.push_back(reason);
  JsonValue filter = order;
  for (const char* name : {"action", "inbox", "reason"}) filter.erase(name);
  values.push_back(Parameter::Text(Dump(filter)));
  if (TextMember(order, "action") == "redrive") {
    values.push_back(Parameter::Text(std::to_string(kMostOfOneStep)));
    return Redriven(session, order, session->Act(kRedriveAll, values));
  }
  values.push_back(Parameter::Text(std::string(order.contains("accept_hole") ? "true" : "false")));
  return Give(session->Act(kDiscardAll, values));
}

}  // namespace postbox::cli

// Moves the Pub/Sub subscription of a subscription. The database checks the right and stores the
// line of the action in one transaction; Pub/Sub is called before its COMMIT. So a seek that fails
// has no line. Without an answer of Pub/Sub it may have been done, so a line says that. Only one
// whose COMMIT fails may have none although it was done: the answer says so.
#include <ctime>

#include "worker/cli/base/seek.h"
#include "worker/cli/console/sources.h"

namespace postbox::cli {
namespace {

using puller::Parameter;
using puller::QueryResult;

// Messages may be skipped if they may wait behind the time, which the database knows only of what a
// puller has in hand and has received lately. $1: the subscription, $2: the time.
constexpr char kFacts[] = R"(
    SELECT s.subscription, postbox.may_act_on(s.inbox),
      $2::timestamptz IS NOT NULL AND NOT EXISTS (
        SELECT FROM postbox.subscription_status t
        WHERE t.subscription = s.name AND t.stream = 'connected'
          AND t.last_seen > clock_timestamp() - interval '1 minute'
          AND $2::timestamptz < least(t.oldest_waiting, clock_timestamp() - interval '10 s'
                                      - greatest(t.lag, interval '0'))
          AND (t.behind_at > clock_timestamp() - interval '1 minute') IS NOT TRUE),
      $2::timestamptz > clock_timestamp(),
      extract(epoch FROM clock_timestamp() - $2::timestamptz)::bigint,
      extract(epoch FROM i.retention)::bigint
    FROM postbox.subscription s JOIN postbox.inbox i ON i.relation = s.inbox WHERE s.name = $1)";
enum FactColumn { kName, kMayAct, kMaySkip, kFuture, kAge, kInboxRetention };

// $2: the reason, $3: the filter, $4: 0 if it is not known whether it was done. Returns no row
// without the right.
constexpr char kRecord[] = R"(
    SELECT s.subscription, postbox.record_console_action('seek', 'subscription ' || s.name,
      $4::bigint, reason => $2, filter => $3::jsonb)::text
    FROM postbox.subscription s WHERE s.name = $1 AND postbox.may_act_on(s.inbox))";

struct SeekOrder {
  std::string subscription;
  SeekTarget target;
  std::optional<std::string> reason;
};

// Nothing after an error, which is put into `refusal`.
std::optional<SeekOrder> Parse(const JsonValue& order, Answer* refusal) {
  SeekOrder parsed{.subscription = TextMember(order, "subscription").value_or(""),
                   .target = {TextMember(order, "time").value_or(""),
                              TextMember(order, "snapshot").value_or("")},
                   .reason = TextMember(order, "reason")};
  std::string problem;
  if (parsed.subscription.empty()) {
    problem = "subscription is missing";
  } else if (parsed.target.time.empty() == parsed.target.snapshot.empty()) {
    problem = "give time or snapshot, and not both";
  } else if (!parsed.target.time.empty() && !SeekTime(parsed.target.time)) {
    problem = std::string("time is not one: ") + kSeekTimeRemedy;
  } else if (!parsed.reason) {
    problem = "reason is missing: it tells others why";
  }
  if (problem.empty()) return parsed;
  *refusal = Refuse(400, problem);
  return std::nullopt;
}

Parameter TimeOf(const SeekOrder& order) {
  return Parameter::Text(order.target.time.empty() ? std::nullopt
                                                   : std::optional<std::string>(order.target.time));
}

// What is wrong, or nothing.
std::optional<Answer> Check(const QueryResult& facts, const Sources& sources) {
  if (!facts.ok()) return Refuse(facts);
  if (facts.rows() != 1) return Refuse(404, "there is no such subscription");
  if (facts.text(0, kMayAct) != "t") {
    return Refuse(403,
                  "permission denied for the subscription: it takes the rights of the owner of its "
                  "inbox, or membership in postbox_operator",
                  "42501");
  }
  if (!sources.broker.options()) return Refuse(409, BrokerPlace::kNotConfigured);
  return std::nullopt;
}

struct CheckedSeek {
  SeekOrder order;
  QueryResult facts;
};

// Nothing after an error, which is put into `refusal`.
std::optional<CheckedSeek> ParseAndCheck(Session* session, const Sources& sources,
                                         const JsonValue& given, Answer* refusal) {
  auto order = Parse(given, refusal);
  if (!order) return std::nullopt;
  QueryResult facts = session->Read(kFacts, {Parameter::Text(order->subscription), TimeOf(*order)});
  if (const auto wrong = Check(facts, sources)) {
    *refusal = *wrong;
    return std::nullopt;
  }
  return CheckedSeek{*std::move(order), std::move(facts)};
}

std::string Advice(const Failure& failure) {
  return failure.problem + (failure.remedy.empty() ? "" : "; " + failure.remedy);
}

std::string Duration(int64_t seconds) {
  constexpr int64_t kMinute = 60, kHour = 3600, kDay = 86400;
  if (seconds % kDay == 0) return std::to_string(seconds / kDay) + " days";
  if (seconds % kHour == 0) return std::to_string(seconds / kHour) + " hours";
  if (seconds % kMinute == 0) return std::to_string(seconds / kMinute) + " minutes";
  return std::to_string(seconds) + " seconds";
}

constexpr char kSkips[] =
    "Messages that were published before this time and are not acknowledged are skipped: they are "
    "never applied. How many they are is not known.";

// `retained`: for how long acknowledged messages can come again, in seconds.
JsonValue WarningsOfTime(const QueryResult& facts, int64_t retained) {
  JsonValue warnings = JsonValue::array();
  if (facts.text(0, kMaySkip) == "t") warnings.push_back(kSkips);
  if (facts.text(0, kFuture) == "t") {
    warnings.push_back(
        "The time is in the future: Pub/Sub acknowledges what is published before it, so nothing "
        "is delivered until then.");
    return warnings;
  }
  if (retained == 0) {
    warnings.push_back(
        "Neither the subscription nor its topic retains acknowledged messages, so none of them "
        "comes again.");
    return warnings;
  }
  warnings.push_back(
      "Acknowledged messages that were published at this time or later come again. The inbox "
      "applies an event once within its retention. How many they are is not known.");
  const int64_t age = facts.integer(0, kAge);
  if (age > retained) {
    warnings.push_back("The time is before what Pub/Sub retains, " + Duration(retained) +
                       ": it begins with the oldest message that is kept.");
  }
  if (!facts.null(0, kInboxRetention) && age > facts.integer(0, kInboxRetention)) {
    warnings.push_back("The time is before what the inbox remembers, " +
                       Duration(facts.integer(0, kInboxRetention)) +
                       ": handlers run again for older events. Projections ignore old versions.");
  }
  return warnings;
}

}  // namespace

Answer PreviewSeek(Session* session, Sources* sources, const JsonValue& order) {
  Answer refusal;
  const auto checked = ParseAndCheck(session, *sources, order, &refusal);
  if (!checked) return refusal;
  const auto& [seek, facts] = *checked;
  Failure failure;
  const OpenPlace* broker = sources->broker.Open(&failure);
  if (broker == nullptr) return Refuse(502, Advice(failure));
  std::chrono::seconds retained{0};
  const std::string name = facts.text(0, kName);
  if (const auto failed = ReadRetention(*broker, name, &retained)) {
    return Refuse(502, "Pub/Sub: " + Advice(*failed));
  }
  const bool to_time = !seek.target.time.empty();
  JsonValue answer = {{"subscription", seek.subscription}, {"pubsub_subscription", name}};
  answer[to_time ? "time" : "snapshot"] = to_time ? seek.target.time : seek.target.snapshot;
  answer["reason"] = *seek.reason;
  answer["may_skip"] = answer["needs_skip"] = facts.text(0, kMaySkip) == "t";
  answer["retained_seconds"] = retained.count();
  answer["warnings"] =
      to_time ? WarningsOfTime(facts, retained.count())
              : JsonValue::array({"Messages that were not acknowledged when the snapshot was "
                                  "created come again, and all that were published later. The "
                                  "inbox applies an event once within its retention."});
  return Give(answer);
}

namespace {

// How far it came.
enum class SeekEnd { kNotCalled, kNoRight, kFailed, kUnanswered, kDone };

std::vector<Parameter> LineOf(const SeekOrder& seek, const JsonValue& filter,
                              const char* affected) {
  return {Parameter::Text(seek.subscription), Parameter::Text(seek.reason),
          Parameter::Text(Dump(filter)), Parameter::Text(std::string(affected))};
}

Answer TellUnanswered(Session* session, const SeekOrder& seek, JsonValue filter,
                      const std::string& error) {
  filter["unanswered"] = true;
  const QueryResult told = session->Act(kRecord, LineOf(seek, filter, "0"));
  const bool stored = told.ok() && told.rows() == 1;
  return Refuse(502, error + "; the seek may have been done" +
                         (stored ? "" : ", and the action has no row in console_action"));
}

}  // namespace

Answer ActSeek(Session* session, Sources* sources, const JsonValue& order) {
  Answer refusal;
  const auto checked = ParseAndCheck(session, *sources, order, &refusal);
  if (!checked) return refusal;
  const SeekOrder& seek = checked->order;
  const QueryResult& facts = checked->facts;
  const bool skips = order.value("skip", JsonValue(false)) == JsonValue(true);
  if (facts.text(0, kMaySkip) == "t" && !skips) {
    return Refuse(409, std::string(kSkips) + " Pass \"skip\": true to accept that.");
  }
  Failure failure;
  const OpenPlace* broker = sources->broker.Open(&failure);
  if (broker == nullptr) return Refuse(502, Advice(failure));
  JsonValue filter;
  if (seek.target.time.empty()) filter["snapshot"] = seek.target.snapshot;
  if (!seek.target.time.empty()) filter["time"] = seek.target.time;
  if (skips) filter["skip"] = true;
  SeekEnd end = SeekEnd::kNotCalled;
  const puller::Connection::Step step = [&](const std::string& name) -> std::string {
    if (name.empty()) {
      end = SeekEnd::kNoRight;
      return "the right to the subscription was taken away";
    }
    const auto failed = Seek(*broker, name, seek.target);
    end = !failed ? SeekEnd::kDone : failed->unanswered ? SeekEnd::kUnanswered : SeekEnd::kFailed;
    return failed ? "Pub/Sub: " + Advice(*failed) : "";
  };
  const QueryResult result = session->Act(kRecord, LineOf(seek, filter, "1"), &step);
  if (result.ok()) {
    return Give({{"affected", "1"}, {"line", result.text(0, 1)}, {"seek", "done"}});
  }
  switch (end) {
    case SeekEnd::kNotCalled:
      return Refuse(result);
    case SeekEnd::kNoRight:
      return Refuse(403, result.error());
    case SeekEnd::kFailed:
      return Refuse(502, result.error());
    case SeekEnd::kUnanswered:
      return TellUnanswered(session, seek, filter, result.error());
    case SeekEnd::kDone:
      break;
  }
  return Refuse(500, "the seek was done, and the action may have no row in console_action: " +
                         result.error());
}

}  // namespace postbox::cli

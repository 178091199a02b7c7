#include "worker/puller/status_report.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "worker/puller/log.h"

namespace postbox::puller {
namespace {

// The table of the reports can be locked by any role, and events shall not wait for it. Nor do they
// wait for long for a session that does not answer.
constexpr TransactionLimits kReportLimits{.statement_timeout = std::chrono::seconds(5),
                                          .lock_timeout = std::chrono::milliseconds(50),
                                          .answer_time = std::chrono::seconds(5)};

// Nor for a report to reach the disk or a standby: what is lost of it in a crash is of no use.
#define POSTBOX_NOT_WAITING "pg_catalog.set_config('synchronous_commit', 'off', true)"

constexpr char kReport[] =
    "INSERT INTO postbox.subscription_status AS s (subscription, puller, started_at, appliers, "
    "applied, duplicates, stale, out_of_order, dead_letters, failures, retrying_since, next_try, "
    "last_error, last_error_at, stream, stream_since, stream_error, conflicts_per_minute, "
    "unanswered_since, unanswered_pid, suspended_types, suspended_since, suspended_error, "
    "received, nacked, in_hand, waiting, oldest_waiting, apply_time_p50, apply_time_p99, parked, "
    "lag, behind_at, events_per_second, catch_up) "
    "SELECT $1, $2, now() - $3::float * interval '1 ms', $4::int, $5::bigint, $6::bigint, "
    "$7::bigint, $8::bigint, $9::bigint, $10::bigint, now() - $11::float * interval '1 ms', "
    "now() + $12::float * interval '1 ms', $13, now() - $14::float * interval '1 ms', "
    "$15, now() - $16::float * interval '1 ms', $17, $18::int, now() - $19::float * interval "
    "'1 ms', $20::int, $21::text[], now() - $22::float * interval '1 ms', $23, $24::bigint, "
    "$25::bigint, $26::bigint, $27::jsonb, now() - $28::float * interval '1 ms', "
    "$29::float * interval '1 us', $30::float * interval '1 us', $31::bigint, "
    "$32::float * interval '1 ms', now() - $33::float * interval '1 ms', $34::float / 1000, "
    "$35::float / 1000 "
    "FROM " POSTBOX_NOT_WAITING
    " ON CONFLICT (subscription, puller) DO UPDATE SET last_seen = excluded.last_seen, "
    "appliers = excluded.appliers, applied = excluded.applied, duplicates = excluded.duplicates, "
    "stale = excluded.stale, out_of_order = excluded.out_of_order, "
    "dead_letters = excluded.dead_letters, failures = excluded.failures, "
    "retrying_since = excluded.retrying_since, next_try = excluded.next_try, "
    "last_error = excluded.last_error, last_error_at = excluded.last_error_at, "
    "stream = excluded.stream, stream_since = excluded.stream_since, "
    "stream_error = excluded.stream_error, conflicts_per_minute = excluded.conflicts_per_minute, "
    "unanswered_since = excluded.unanswered_since, "
    "unanswered_pid = excluded.unanswered_pid, suspended_types = excluded.suspended_types, "
    "suspended_since = excluded.suspended_since, suspended_error = excluded.suspended_error, "
    "received = excluded.received, nacked = excluded.nacked, in_hand = excluded.in_hand, "
    "waiting = excluded.waiting, oldest_waiting = excluded.oldest_waiting, "
    "apply_time_p50 = excluded.apply_time_p50, "
    "apply_time_p99 = excluded.apply_time_p99, parked = excluded.parked, lag = excluded.lag, "
    "behind_at = excluded.behind_at, events_per_second = excluded.events_per_second, "
    "catch_up = excluded.catch_up";
// Also what pullers have left behind that were killed, or whose subscription was refused. One that
// lives reports every 5 minutes (ReportTimer::kSignOfLife).
constexpr char kRemoveReport[] =
    "DELETE FROM postbox.subscription_status USING " POSTBOX_NOT_WAITING
    " WHERE subscription = $1 "
    "AND (puller = $2 OR last_seen < now() - "
    "CASE stream WHEN 'failed' THEN interval '6 minutes' ELSE interval '1 day' END)";

// Host and process id.
const std::string& ThisPuller() {
  static const std::string puller = [] {
    char host[256] = "";
    if (gethostname(host, sizeof(host) - 1) != 0) host[0] = '\0';
    return std::string(host) + ":" + std::to_string(getpid());
  }();
  return puller;
}

// Event types come from messages. A character that the database lacks is no reason for having no
// report.
std::string Stored(const Connection& connection, std::string type) {
  if (connection.utf8()) return type;
  std::replace_if(
      type.begin(), type.end(), [](char c) { return (c & 0x80) != 0; }, '?');
  return type;
}

Parameter TypesParameter(const Connection& connection, std::vector<std::string> types) {
  for (std::string& type : types) type = Stored(connection, std::move(type));
  return Parameter::Array(kTextOid, {types.begin(), types.end()});
}

// How long ago the message was published that has waited for longest.
int64_t Age(const WaitingEvents& waiting) {
  const auto age = std::chrono::system_clock::now() - waiting.oldest;
  return std::max<int64_t>(0, std::chrono::duration_cast<std::chrono::milliseconds>(age).count());
}

// {TYPE: {"events": n, "versions": n, "oldest_ms": n}}, of the types with the most events.
std::string WaitingJson(const Connection& connection,
                        const std::map<std::string, WaitingEvents, std::less<>>& waiting) {
  std::vector<std::pair<std::string, WaitingEvents>> types(waiting.begin(), waiting.end());
  std::sort(types.begin(), types.end(), [](const auto& one, const auto& other) {
    return one.second.events > other.second.events;
  });
  types.resize(std::min(types.size(), kMostReportedTypes));
  auto json = nlohmann::json::object();
  for (const auto& [type, events] : types) {
    json[Stored(connection, Cut(type, kMostTypeBytes))] = {
        {"events", events.events}, {"versions", events.versions}, {"oldest_ms", Age(events)}};
  }
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

QueryResult StoreReport(Connection* connection, const std::string& subscription, int appliers,
                        const StatusNumbers& numbers) {
  std::vector<Parameter> parameters{Parameter::Text(subscription), Parameter::Text(ThisPuller())};
  const auto number = [&parameters](std::optional<int64_t> value) {
    std::optional<std::string> text;
    if (value) text = std::to_string(*value);
    parameters.push_back(Parameter::Text(std::move(text)));
  };
  const auto text = [&parameters](bool known, const std::string& value) {
    parameters.push_back(known ? Parameter::Text(value) : Parameter::Text(std::nullopt));
  };
  for (int64_t value :
       {numbers.running_for_ms, int64_t{appliers}, numbers.applied, numbers.duplicates,
        numbers.stale, numbers.out_of_order, numbers.dead_letters, numbers.failures}) {
    number(value);
  }
  number(numbers.retrying_for_ms);
  number(numbers.next_try_in_ms);
  text(numbers.last_error_before_ms.has_value(), numbers.last_error);
  number(numbers.last_error_before_ms);
  text(true, numbers.stream);
  number(numbers.stream_for_ms);
  text(!numbers.stream_error.empty(), numbers.stream_error);
  number(numbers.conflicts);
  number(numbers.unanswered_for_ms);
  number(numbers.unanswered_for_ms ? std::optional<int64_t>(numbers.unanswered_backend)
                                   : std::nullopt);
  const bool suspended = !numbers.suspended_types.empty();
  parameters.push_back(suspended ? TypesParameter(*connection, numbers.suspended_types)
                                 : Parameter::Text(std::nullopt));
  number(suspended ? std::optional<int64_t>(numbers.suspended_for_ms) : std::nullopt);
  text(suspended, numbers.suspended_error);
  for (int64_t value : {numbers.received, numbers.nacked, numbers.in_hand}) number(value);
  parameters.push_back(Parameter::Text(WaitingJson(*connection, numbers.waiting)));
  std::optional<int64_t> oldest;
  for (const auto& [type, events] : numbers.waiting)
    oldest = std::max(oldest, std::optional(Age(events)));
  number(oldest);
  for (const auto& time : {numbers.apply_time_p50, numbers.apply_time_p99}) {
    number(time ? std::optional<int64_t>(time->count()) : std::nullopt);
  }
  number(numbers.parked);
  number(numbers.lag.lag_ms);
  number(numbers.behind_before_ms);
  number(numbers.lag.events_per_1000_s);
  number(numbers.lag.catch_up_per_1000);
  return connection->Execute(kReport, parameters, &kReportLimits);
}

QueryResult RemoveReport(Connection* connection, const std::string& subscription) {
  return connection->Execute(kRemoveReport,
                             {Parameter::Text(subscription), Parameter::Text(ThisPuller())},
                             &kReportLimits);
}

}  // namespace postbox::puller

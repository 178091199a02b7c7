#include "worker/puller/status_report.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

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
    "unanswered_since, unanswered_pid, suspended_types, suspended_since, suspended_error) "
    "SELECT $1, $2, now() - $3::float * interval '1 ms', $4::int, $5::bigint, $6::bigint, "
    "$7::bigint, $8::bigint, $9::bigint, $10::bigint, now() - $11::float * interval '1 ms', "
    "now() + $12::float * interval '1 ms', $13, now() - $14::float * interval '1 ms', "
    "$15, now() - $16::float * interval '1 ms', $17, $18::int, now() - $19::float * interval "
    "'1 ms', $20::int, $21::text[], now() - $22::float * interval '1 ms', $23 "
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
    "suspended_since = excluded.suspended_since, suspended_error = excluded.suspended_error";
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
  return connection->Execute(kReport, parameters, &kReportLimits);
}

QueryResult RemoveReport(Connection* connection, const std::string& subscription) {
  return connection->Execute(kRemoveReport,
                             {Parameter::Text(subscription), Parameter::Text(ThisPuller())},
                             &kReportLimits);
}

}  // namespace postbox::puller

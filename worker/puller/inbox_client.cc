#include "worker/puller/inbox_client.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "proto/rules/attributes.h"
#include "worker/puller/event_array.h"
#include "worker/puller/failpoint.h"
#include "worker/puller/status_report.h"

namespace postbox::puller {
namespace {

// A duplicate is acked like an event that was applied, so its effect must be as durable. The
// transaction of its effect may still wait for a standby, or have been released from that wait by a
// cancel. With its own transaction id this transaction has a COMMIT record behind the other
// one, and waits for it.
// An event that fails is raised: BatchApplier decides what becomes of it.
// The outcomes are words. As one text they cost the server and libpq no row for each.
constexpr char kApply[] =
    "SELECT array_to_string(a.outcomes, ' '), "
    "CASE WHEN 'duplicate' = ANY (a.outcomes) THEN pg_current_xact_id() END "
    "FROM (SELECT postbox.inbox_apply_batch($1::oid::regclass, $2::postbox.event[], "
    "on_error => 'raise', json_detail => true) AS outcomes OFFSET 0) AS a";

// The texts are sent as bytes: one that the database cannot hold must not keep its event from being
// recorded. A duplicate waits for the COMMIT of its effect here, too.
constexpr char kRecord[] =
    "SELECT r.outcome, CASE WHEN r.outcome = 'duplicate' THEN pg_current_xact_id() END "
    "FROM (SELECT postbox.record_dead_letter($1::oid::regclass, e.event_id, e.event_type, "
    "e.aggregate_type, e.aggregate_id, e.version::bigint, e.payload, e.attributes, "
    "e.occurred_at::timestamptz, $10::text, $11::bytea, $12::int, $13::text) AS outcome "
    "FROM unnest($2::bytea[], $3::bytea[], $4::bytea[], $5::bytea[], $6::text[], $7::bytea[], "
    "$8::bytea[], $9::text[]) AS e(event_id, event_type, aggregate_type, aggregate_id, version, "
    "payload, attributes, occurred_at) OFFSET 0) AS r";

// The claim commits before the work begins: whatever becomes of that, other keys have their turn.
constexpr char kClaim[] =
    "SELECT c.aggregate_id, c.keys, c.events, c.bytes "
    "FROM postbox.claim_parked_key($1::oid::regclass, $2::boolean) c";
constexpr char kRetry[] =
    "SELECT r.applied, r.without_effect, r.more, r.sqlstate, r.error "
    "FROM postbox.redrive_parked_key($1::oid::regclass, $2::text) r";

// The event of a dead letter, as kRecord takes it.
std::vector<Parameter> LetterParameters(Oid inbox, const ReceivedEvent& event) {
  const auto array = [](Oid type, std::optional<std::string_view> value) {
    return Parameter::Array(type, {value});
  };
  std::optional<std::string> version;
  if (event.version) version = std::to_string(*event.version);
  std::optional<std::string> occurred_at;
  if (event.occurred_at) occurred_at = pubsub::FormatRfc3339(*event.occurred_at);
  return {Parameter::Text(std::to_string(inbox)),
          array(kByteaOid, event.event_id),
          array(kByteaOid, event.event_type),
          array(kByteaOid, event.aggregate_type),
          array(kByteaOid, event.aggregate_id),
          array(kTextOid, version),
          array(kByteaOid, event.payload),
          array(kByteaOid, event.attributes),
          array(kTextOid, occurred_at)};
}

std::vector<std::string> Words(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const size_t length = std::min(text.find(' '), text.size());
    words.emplace_back(text.substr(0, length));
    text.remove_prefix(std::min(length + 1, text.size()));
  }
  return words;
}

InboxResult Converted(const QueryResult& result) {
  return {.ok = result.ok(),
          .sqlstate = result.sqlstate(),
          .error = result.error(),
          .not_begun = result.not_begun()};
}

}  // namespace

std::optional<ErrorDetail> ReadErrorDetail(std::string_view json) {
  if (json.empty() || json.size() > kMaxDetailBytes) return std::nullopt;
  const auto detail = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!detail.is_object()) return std::nullopt;
  ErrorDetail read;
  for (const auto& [name, value] : detail.items()) {
    if (name == "event" && value.is_number_unsigned() && value.get<size_t>() > 0) {
      read.event_at = value.get<size_t>() - 1;
    } else if (name == "detail" && value.is_string()) {
      read.text = value.get<std::string>();
    } else {
      return std::nullopt;
    }
  }
  return read;
}

bool DatabaseInboxClient::Connect(std::string* error) {
  progressed_at_ = std::chrono::steady_clock::now() + Connection::kConnectTime;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    connection_.reset();
  }
  auto connection = Connection::Open(dsn_, application_name_, limits_, interrupt_, error);
  if (!connection) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  connection_ = std::move(connection);
  return true;
}

void DatabaseInboxClient::Disconnect() {
  const std::lock_guard<std::mutex> lock(mutex_);
  connection_.reset();
}

std::optional<Unanswered> DatabaseInboxClient::asked() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return asked_;
}

DatabaseInboxClient::Asking::Asking(DatabaseInboxClient* client) : client_(client) {
  const std::lock_guard<std::mutex> lock(client_->mutex_);
  client_->asked_ = {std::chrono::steady_clock::now(), client_->connection_->backend_pid()};
}

DatabaseInboxClient::Asking::~Asking() {
  client_->Progressed();
  const std::lock_guard<std::mutex> lock(client_->mutex_);
  client_->asked_.reset();
}

void DatabaseInboxClient::Cancel() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (connection_) connection_->Cancel();
}

void DatabaseInboxClient::Abort() {
  if (interrupt_ >= 0) eventfd_write(interrupt_, 1);
}

void DatabaseInboxClient::SetDeadline(std::chrono::steady_clock::time_point deadline) {
  if (connection_) connection_->SetDeadline(deadline);
}

QueryResult DatabaseInboxClient::Ask(const char* sql, const std::vector<Parameter>& parameters,
                                     std::optional<std::chrono::milliseconds> time) {
  const Asking asking(this);
  // What the statement can see of its limits stays as it is: only the wait for it is shorter.
  TransactionLimits limits = limits_;
  const bool shorter = time && *time < limits_.statement_timeout;
  if (shorter) limits.answer_time = *time - limits_.statement_timeout;
  QueryResult result = connection_->Execute(sql, parameters, shorter ? &limits : nullptr);
  Failpoint("after_answer");
  return result;
}

InboxResult DatabaseInboxClient::Apply(const std::vector<const Delivery*>& events,
                                       std::optional<std::chrono::milliseconds> time) {
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<Parameter> parameters = {Parameter::Text(std::to_string(inbox_)),
                                             EventArray(event_type_, events)};
  QueryResult result = Ask(kApply, parameters, time);
  InboxResult applied = Converted(result);
  applied.took = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - begin);
  if (!result.ok()) {
    if (const auto detail = ReadErrorDetail(result.detail())) {
      applied.event_at = detail->event_at;
      applied.error = result.ErrorWith(detail->text);
    }
    return applied;
  }
  applied.outcomes = Words(result.rows() == 1 ? result.text(0, 0) : "");
  if (applied.outcomes.size() != events.size()) {
    applied.ok = false;
    applied.sqlstate = "XX000";
    applied.error = "postbox.inbox_apply_batch did not return one outcome for each event";
  }
  return applied;
}

InboxResult DatabaseInboxClient::RecordDeadLetter(const Delivery& delivery,
                                                  const EventFailure& failure, bool park) {
  std::vector<Parameter> parameters = LetterParameters(inbox_, delivery.event);
  parameters.push_back(Parameter::Text(failure.sqlstate));
  parameters.push_back(Parameter::Bytes(failure.error));
  parameters.push_back(Parameter::Text(std::to_string(failure.attempts)));
  parameters.push_back(Parameter::Text(std::string(park ? "park_key" : "reject")));
  const QueryResult result = Ask(kRecord, parameters);
  InboxResult recorded = Converted(result);
  if (recorded.ok) recorded.outcomes = {result.rows() == 1 ? result.text(0, 0) : ""};
  return recorded;
}

ParkedStep DatabaseInboxClient::RetryParked(bool count) {
  ParkedStep step;
  const auto failed = [&step](const QueryResult& result) {
    step.sqlstate = result.sqlstate();
    step.error = result.error();
    return step;
  };
  const std::string inbox = std::to_string(inbox_);
  const QueryResult claim =
      Ask(kClaim, {Parameter::Text(inbox), Parameter::Text(std::string(count ? "true" : "false"))});
  if (!claim.ok()) return failed(claim);
  if (count) {
    step.parked = {claim.integer(0, 1), claim.integer(0, 2), claim.integer(0, 3)};
  }
  step.ok = claim.null(0, 0);
  if (step.ok) return step;
  step.key = claim.text(0, 0);
  const QueryResult retry = Ask(kRetry, {Parameter::Text(inbox), Parameter::Text(*step.key)});
  if (!retry.ok()) return failed(retry);
  step.ok = true;
  step.applied = retry.integer(0, 0);
  step.without_effect = retry.integer(0, 1);
  step.sqlstate = retry.text(0, 3);
  step.error = retry.text(0, 4);
  return step;
}

InboxResult DatabaseInboxClient::Report(const std::string& subscription, int appliers,
                                        const StatusNumbers* numbers) {
  const Asking asking(this);
  return Converted(numbers == nullptr
                       ? RemoveReport(connection_.get(), subscription)
                       : StoreReport(connection_.get(), subscription, appliers, *numbers));
}

}  // namespace postbox::puller

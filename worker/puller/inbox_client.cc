#include "worker/puller/inbox_client.h"

#include <optional>
#include <string_view>
#include <utility>

namespace postbox::puller {
namespace {

// The fields of the events are sent as parallel arrays. The server builds postbox.event values of
// them.
#define POSTBOX_EVENT_FIELDS                                                            \
  "ROW(e.event_id, e.event_type, e.aggregate_type, e.aggregate_id, e.version::bigint, " \
  "e.payload, e.attributes::jsonb, e.occurred_at::timestamptz)::postbox.event"
#define POSTBOX_EVENT_ARRAYS                                                            \
  "unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bytea[], "    \
  "$8::text[], $9::text[]) WITH ORDINALITY AS e(event_id, event_type, aggregate_type, " \
  "aggregate_id, version, payload, attributes, occurred_at, position)"

// An event that fails is raised: BatchApplier decides what becomes of it.
constexpr char kApply[] =
    "SELECT o.outcome FROM unnest(postbox.inbox_apply_batch($1::oid::regclass, "
    "ARRAY(SELECT " POSTBOX_EVENT_FIELDS " FROM " POSTBOX_EVENT_ARRAYS
    " ORDER BY e.position), on_error => 'raise')) WITH ORDINALITY AS o(outcome, position) "
    "ORDER BY o.position";

// The texts are sent as bytes: one that the database cannot hold must not keep its event from being
// recorded.
constexpr char kRecord[] =
    "SELECT postbox.record_dead_letter($1::oid::regclass, e.event_id, e.event_type, "
    "e.aggregate_type, e.aggregate_id, e.version::bigint, e.payload, e.attributes, "
    "e.occurred_at::timestamptz, $10::text, convert_to($11::text, 'UTF8'), $12::int) "
    "FROM unnest($2::bytea[], $3::bytea[], $4::bytea[], $5::bytea[], $6::text[], $7::bytea[], "
    "$8::bytea[], $9::text[]) AS e(event_id, event_type, aggregate_type, aggregate_id, version, "
    "payload, attributes, occurred_at)";

std::optional<std::string_view> View(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  return *text;
}

// `text_type`: as what the texts of the events are sent.
std::vector<Parameter> EventParameters(Oid inbox, const std::vector<const Delivery*>& deliveries,
                                       Oid text_type) {
  std::vector<std::string> versions;
  versions.reserve(deliveries.size());
  for (const Delivery* delivery : deliveries) {
    versions.push_back(delivery->event.version ? std::to_string(*delivery->event.version) : "");
  }
  std::vector<std::optional<std::string_view>> values(deliveries.size());
  auto column = [&](Oid type, auto&& field) {
    for (size_t i = 0; i < deliveries.size(); ++i) values[i] = field(deliveries[i]->event, i);
    return Parameter::Array(type, values);
  };
  std::vector<Parameter> parameters;
  parameters.push_back(Parameter::Text(std::to_string(inbox)));
  parameters.push_back(
      column(text_type, [](const ReceivedEvent& e, size_t) { return View(e.event_id); }));
  parameters.push_back(
      column(text_type, [](const ReceivedEvent& e, size_t) { return View(e.event_type); }));
  parameters.push_back(
      column(text_type, [](const ReceivedEvent& e, size_t) { return View(e.aggregate_type); }));
  parameters.push_back(
      column(text_type, [](const ReceivedEvent& e, size_t) { return View(e.aggregate_id); }));
  parameters.push_back(
      column(kTextOid, [&](const ReceivedEvent& e, size_t i) -> std::optional<std::string_view> {
        if (!e.version) return std::nullopt;
        return versions[i];
      }));
  parameters.push_back(column(kByteaOid, [](const ReceivedEvent& e, size_t) {
    return std::optional<std::string_view>(e.payload);
  }));
  parameters.push_back(column(text_type, [](const ReceivedEvent& e, size_t) {
    return std::optional<std::string_view>(e.attributes);
  }));
  parameters.push_back(
      column(kTextOid, [](const ReceivedEvent& e, size_t) { return View(e.occurred_at); }));
  return parameters;
}

}  // namespace

bool DatabaseInboxClient::Connect(std::string* error) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    connection_.reset();
  }
  auto connection = Connection::Open(dsn_, application_name_, error);
  if (!connection) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  connection_ = std::move(connection);
  return true;
}

void DatabaseInboxClient::Cancel() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (connection_) connection_->Cancel();
}

InboxResult DatabaseInboxClient::Apply(const std::vector<const Delivery*>& events) {
  QueryResult result = connection_->Execute(kApply, EventParameters(inbox_, events, kTextOid));
  InboxResult applied{result.ok(), {}, result.sqlstate(), result.error()};
  if (!result.ok()) return applied;
  for (int row = 0; row < result.rows(); ++row) applied.outcomes.push_back(result.text(row, 0));
  if (applied.outcomes.size() != events.size()) {
    applied.ok = false;
    applied.sqlstate = "XX000";
    applied.error = "postbox.inbox_apply_batch did not return one outcome for each event";
  }
  return applied;
}

InboxResult DatabaseInboxClient::RecordDeadLetter(const Delivery& delivery,
                                                  const std::string& sqlstate,
                                                  const std::string& error, int attempts) {
  std::vector<Parameter> parameters = EventParameters(inbox_, {&delivery}, kByteaOid);
  parameters.push_back(Parameter::Text(sqlstate));
  parameters.push_back(Parameter::Text(error));
  parameters.push_back(Parameter::Text(std::to_string(attempts)));
  QueryResult result = connection_->Execute(kRecord, parameters);
  return {result.ok(), {}, result.sqlstate(), result.error()};
}

}  // namespace postbox::puller

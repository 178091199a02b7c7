#include "worker/cli/audit/reader_side.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

namespace postbox::cli {
namespace {

using Json = nlohmann::json;
using puller::Parameter;
using puller::QueryResult;

constexpr char kDescribeReader[] =
    "SELECT r.subscription, r.identity, r.inbox, r.now_micros, r.created, r.retention_micros, "
    "array_to_json(r.shared_with)::text, r.puller, r.targets::text, r.waiting_types::text, "
    "r.timeline, r.wal FROM postbox.audit_reader($1) r";
constexpr char kReceived[] =
    "SELECT a.event_id, a.aggregate_type, a.aggregate_id, a.event_type, a.version, a.received, "
    "a.outcome, a.detail FROM postbox.audit_received($1::oid, $2::uuid[]) a";
constexpr char kArrivals[] =
    "SELECT a.event_id, a.aggregate_type, a.aggregate_id, a.event_type, a.version, a.received, "
    "a.outcome, NULL FROM postbox.audit_arrivals($1::oid, $2::bigint, $3::uuid, $4::bigint, "
    "$5::int) a";
constexpr char kCompare[] =
    "SELECT c.number, c.target, c.problem, c.stored_version, array_to_string(c.columns, ', ') "
    "FROM postbox.audit_rows($1::oid, ARRAY(SELECT ROW(e.id, e.event_type, e.aggregate_type, "
    "e.aggregate_id, e.version::bigint, e.payload::bytea, e.attributes::jsonb, "
    "postbox.time_of_micros(nullif(e.occurred, '0')::bigint))::postbox.event "
    "FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], "
    "$8::text[], $9::text[]) WITH ORDINALITY AS e(id, event_type, aggregate_type, aggregate_id, "
    "version, payload, attributes, occurred, number) ORDER BY e.number)) c";

std::vector<Arrival> ArrivalRows(const QueryResult& result) {
  std::vector<Arrival> arrivals(static_cast<size_t>(result.rows()));
  for (int row = 0; row < result.rows(); ++row) {
    Arrival& arrival = arrivals[static_cast<size_t>(row)];
    arrival.id = result.text(row, 0);
    arrival.aggregate_type = result.text(row, 1);
    arrival.aggregate_id = result.text(row, 2);
    arrival.event_type = result.text(row, 3);
    if (!result.null(row, 4)) arrival.version = result.integer(row, 4);
    arrival.received = result.integer(row, 5);
    arrival.outcome = result.text(row, 6);
    arrival.detail = result.text(row, 7);
  }
  return arrivals;
}

// The columns of postbox.event, each an array of texts.
class EventColumns {
 public:
  void Add(const SourceEvent& event, const EventContent& content) {
    numbers_.push_back(event.version ? std::to_string(*event.version) : "");
    times_.push_back(std::to_string(event.occurred));
    events_.push_back(&event);
    contents_.push_back(&content);
  }
  bool empty() const { return events_.empty(); }

  std::vector<Parameter> Parameters(const std::string& inbox) const {
    std::vector<Parameter> parameters = {Parameter::Text(inbox)};
    const auto add = [&](auto&& value_of) {
      std::vector<std::optional<std::string_view>> values;
      for (size_t i = 0; i < events_.size(); ++i) values.push_back(value_of(i));
      parameters.push_back(Parameter::Array(puller::kTextOid, values));
    };
    using Value = std::optional<std::string_view>;
    add([&](size_t i) -> Value { return events_[i]->id; });
    add([&](size_t i) -> Value { return events_[i]->event_type; });
    add([&](size_t i) -> Value { return events_[i]->aggregate_type; });
    add([&](size_t i) -> Value { return events_[i]->aggregate_id; });
    add([&](size_t i) -> Value { return numbers_[i]; });
    add([&](size_t i) -> Value { return contents_[i]->payload; });
    add([&](size_t i) -> Value { return contents_[i]->attributes; });
    add([&](size_t i) -> Value { return times_[i]; });
    return parameters;
  }

 private:
  std::vector<const SourceEvent*> events_;
  std::vector<const EventContent*> contents_;
  std::vector<std::string> numbers_;
  std::vector<std::string> times_;
};

}  // namespace

ReaderSide::ReaderSide(const std::string& dsn, const std::string& subscription)
    : side_("reader", dsn), reader_(Describe(subscription)) {}

ReaderState ReaderSide::Describe(const std::string& subscription) {
  std::optional<std::string> wanted;
  if (!subscription.empty()) wanted = subscription;
  const QueryResult found = side_.Ask(kDescribeReader, {Parameter::Text(wanted)});
  if (found.rows() != 1) {
    const bool none = found.rows() == 0;
    throw AuditFailure({"not_found",
                        "reader: database " + side_.database() + " has " +
                            (none ? "no such subscription" : "several subscriptions"),
                        none ? "create it with postbox.create_subscription, or correct --reader "
                               "and --subscription"
                             : "name one with --subscription"});
  }
  ReaderState reader;
  reader.subscription = found.text(0, 0);
  reader.identity = found.text(0, 1);
  reader.inbox = found.text(0, 2);
  reader.now = found.integer(0, 3);
  reader.created = found.integer(0, 4);
  reader.retention = found.integer(0, 5);
  reader.shared_with = Json::parse(found.text(0, 6)).get<std::vector<std::string>>();
  reader.puller = found.text(0, 7);
  std::map<std::string, std::set<std::string>> targets;
  for (const Json& projection : Json::parse(found.text(0, 8))) {
    for (const Json& type : projection.at("event_types")) {
      targets[type.get<std::string>()].insert(projection.at("target").get<std::string>());
    }
  }
  for (const auto& [type, names] : targets) reader.targets[type] = {names.begin(), names.end()};
  reader.waiting_types = Json::parse(found.text(0, 9)).get<std::map<std::string, std::string>>();
  reader.history = {found.integer(0, 10), found.integer(0, 11)};
  return reader;
}

Arrivals ReaderSide::Received(const std::vector<std::string>& ids) {
  Arrivals arrivals;
  for (Arrival& arrival :
       ArrivalRows(side_.Ask(kReceived, {Parameter::Text(reader_.inbox), IdArray(ids)}))) {
    arrivals.emplace(arrival.id, std::move(arrival));
  }
  return arrivals;
}

std::vector<Arrival> ReaderSide::Page(int64_t after, const std::string& after_id, int64_t upto) {
  return ArrivalRows(
      side_.Ask(kArrivals, {Parameter::Text(reader_.inbox), Parameter::Text(std::to_string(after)),
                            Parameter::Text(after_id), Parameter::Text(std::to_string(upto)),
                            Parameter::Text(std::to_string(kPage))}));
}

std::vector<ComparedRow> ReaderSide::CompareRows(const std::vector<SourceEvent>& events,
                                                 const std::vector<EventContent>& contents) {
  EventColumns columns;
  std::vector<size_t> numbers;
  for (size_t i = 0; i < events.size(); ++i) {
    if (contents[i].payload.empty()) continue;
    columns.Add(events[i], contents[i]);
    numbers.push_back(i);
  }
  if (columns.empty()) return {};
  const QueryResult found = side_.Ask(kCompare, columns.Parameters(reader_.inbox));
  std::vector<ComparedRow> rows;
  for (int row = 0; row < found.rows(); ++row) {
    const auto number = static_cast<size_t>(found.integer(row, 0));
    rows.push_back({numbers.at(number), found.text(row, 1), found.text(row, 2),
                    found.integer(row, 3), found.text(row, 4)});
  }
  return rows;
}

}  // namespace postbox::cli

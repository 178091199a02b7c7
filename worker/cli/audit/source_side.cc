#include "worker/cli/audit/source_side.h"

#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>

namespace postbox::cli {
namespace {

using Json = nlohmann::json;
using Names = std::set<std::string>;
using puller::Parameter;
using puller::QueryResult;

constexpr char kDescribeSource[] =
    "SELECT s.publication, s.identity, s.kind = 'log', s.now_micros, s.settled, s.upto, "
    "s.retained_from, s.created, array_to_json(s.origins)::text, "
    "array_to_json(s.aggregate_types)::text, s.parked, s.oldest, s.problem, s.timeline, s.wal "
    "FROM postbox.audit_source($1) s";
constexpr char kEmitted[] =
    "SELECT e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.version, e.occurred, e.bytes, "
    "e.place, e.state "
    "FROM postbox.audit_emitted($1, $2::int, $3::bigint, $4::uuid, $5::bigint, $6::int) e";
constexpr char kEvents[] =
    "SELECT e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.version, e.occurred, e.bytes, "
    "e.place, e.state FROM postbox.audit_events($1, $2::uuid[], false) e";
constexpr char kKnown[] = "SELECT e.id FROM postbox.audit_events($1, $2::uuid[], NULL) e";
constexpr char kLastVersions[] =
    "SELECT v.number, v.version "
    "FROM postbox.audit_last_versions($1, $2::text[], $3::text[], $4::text[]) v";
constexpr char kContents[] =
    "SELECT e.id, e.payload, e.attributes FROM postbox.audit_events($1, $2::uuid[], true) e";

std::vector<SourceEvent> EventRows(const QueryResult& result) {
  std::vector<SourceEvent> events(static_cast<size_t>(result.rows()));
  for (int row = 0; row < result.rows(); ++row) {
    SourceEvent& event = events[static_cast<size_t>(row)];
    event.id = result.text(row, 0);
    event.aggregate_type = result.text(row, 1);
    event.aggregate_id = result.text(row, 2);
    event.event_type = result.text(row, 3);
    if (!result.null(row, 4)) event.version = result.integer(row, 4);
    event.occurred = result.integer(row, 5);
    event.bytes = result.integer(row, 6);
    event.place = result.integer(row, 7);
    event.state = result.text(row, 8);
  }
  return events;
}

}  // namespace

SourceSide::SourceSide(const std::string& dsn, const std::string& publication)
    : side_("source", dsn), source_(Describe(publication)) {}

SourceState SourceSide::Describe(const std::string& publication) {
  std::optional<std::string> wanted;
  if (!publication.empty()) wanted = publication;
  const QueryResult found = side_.Ask(kDescribeSource, {Parameter::Text(wanted)});
  if (found.rows() != 1) {
    const bool none = found.rows() == 0;
    throw AuditFailure({"not_found",
                        "source: database " + side_.database() + " has " +
                            (none ? "no such publication" : "several publications"),
                        none ? "create it with postbox.create_publication, or correct --source "
                               "and --publication"
                             : "name one with --publication"});
  }
  SourceState source;
  source.publication = found.text(0, 0);
  source.identity = found.text(0, 1);
  source.is_log = found.text(0, 2) == "t";
  source.now = found.integer(0, 3);
  source.settled = found.integer(0, 4);
  source.upto = found.integer(0, 5);
  source.retained_from = found.integer(0, 6);
  source.created = found.integer(0, 7);
  source.origins = Json::parse(found.text(0, 8)).get<std::vector<int64_t>>();
  if (!found.null(0, 9)) source.aggregate_types = Json::parse(found.text(0, 9)).get<Names>();
  source.parked = found.integer(0, 10);
  if (!found.null(0, 11)) source.oldest = found.integer(0, 11);
  source.problem = found.text(0, 12);
  source.history = {found.integer(0, 13), found.integer(0, 14)};
  return source;
}

std::vector<SourceEvent> SourceSide::Page(int64_t origin, int64_t after,
                                          const std::string& after_id, int64_t upto) {
  return EventRows(side_.Ask(
      kEmitted, {Parameter::Text(source_.publication), Parameter::Text(std::to_string(origin)),
                 Parameter::Text(std::to_string(after)), Parameter::Text(after_id),
                 Parameter::Text(std::to_string(upto)), Parameter::Text(std::to_string(kPage))}));
}

std::vector<SourceEvent> SourceSide::Events(const std::vector<std::string>& ids) {
  return EventRows(side_.Ask(kEvents, {Parameter::Text(source_.publication), IdArray(ids)}));
}

std::unordered_set<std::string> SourceSide::Known(const std::vector<std::string>& ids) {
  const QueryResult found = side_.Ask(kKnown, {Parameter::Text(source_.publication), IdArray(ids)});
  std::unordered_set<std::string> known;
  for (int row = 0; row < found.rows(); ++row) known.insert(found.text(row, 0));
  return known;
}

std::vector<int64_t> SourceSide::LastVersions(const std::vector<std::string>& types,
                                              const std::vector<SourceEvent>& events) {
  using Texts = std::vector<std::optional<std::string_view>>;
  Texts aggregate_types;
  Texts aggregate_ids;
  for (const SourceEvent& event : events) {
    aggregate_types.emplace_back(event.aggregate_type);
    aggregate_ids.emplace_back(event.aggregate_id);
  }
  const auto array = [](const Texts& texts) { return Parameter::Array(puller::kTextOid, texts); };
  const QueryResult found = side_.Ask(
      kLastVersions, {Parameter::Text(source_.publication), array({types.begin(), types.end()}),
                      array(aggregate_types), array(aggregate_ids)});
  std::vector<int64_t> versions(events.size());
  for (int row = 0; row < found.rows(); ++row) {
    versions.at(static_cast<size_t>(found.integer(row, 0))) = found.integer(row, 1);
  }
  return versions;
}

size_t SourceSide::Fitting(const std::vector<SourceEvent>& events, size_t first) {
  int64_t bytes = 0;
  size_t end = first;
  while (end < events.size() && (end == first || bytes + events[end].bytes <= kMostBytes)) {
    bytes += events[end++].bytes;
  }
  return end - first;
}

std::vector<EventContent> SourceSide::Contents(const std::vector<SourceEvent>& events) {
  std::vector<std::string> ids;
  std::unordered_map<std::string, size_t> places;
  for (const SourceEvent& event : events) {
    places[event.id] = ids.size();
    ids.push_back(event.id);
  }
  const QueryResult found =
      side_.Ask(kContents, {Parameter::Text(source_.publication), IdArray(ids)});
  std::vector<EventContent> contents(events.size());
  for (int row = 0; row < found.rows(); ++row) {
    EventContent& content = contents[places.at(found.text(row, 0))];
    content.payload = found.text(row, 1);
    content.attributes = found.optional(row, 2);
  }
  return contents;
}

}  // namespace postbox::cli

#include "worker/cli/console/event_way.h"

#include <chrono>
#include <set>

#include "proto/rules/attributes.h"
#include "worker/cli/console/reads.h"

namespace postbox::cli {
namespace {

using puller::Parameter;
using puller::QueryResult;

constexpr int kMostPlaces = 50;   // outboxes and inboxes that are looked into
constexpr int kMostEvents = 200;  // of each
constexpr int kPayloadOfMany = 4096;
constexpr char kNewest[] = "100000";
// A search looks into one place after the other, as long as these two allow it.
using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kLongestSearch{30};
constexpr size_t kMostFoundBytes = 4194304;

// One publication of each outbox would do for the events, but each has its own state of them.
constexpr char kPublications[] =
    "SELECT p.name FROM postbox.publication p WHERE $1::text IS NULL OR p.name = $1 "
    "ORDER BY p.name LIMIT $2::int + 1";
constexpr char kInboxes[] =
    "SELECT i.relation::text FROM postbox.inbox i WHERE $1::text IS NULL "
    "OR i.relation::text = $1 ORDER BY i.relation LIMIT $2::int + 1";

// With the state of a parked event, and of one that has expired.
constexpr char kOutgoing[] = R"(
    WITH e AS MATERIALIZED (
      SELECT * FROM postbox.find_events($1, $2::uuid, $3, $4, $5::bigint, $6::int, $7::int))
    SELECT json_build_object(
      'publication', $1::text, 'outbox', p.outbox::text, 'topic', p.topic, 'event_id', e.id,
      'event_type', e.event_type, 'aggregate_type', e.aggregate_type,
      'aggregate_id', e.aggregate_id, 'version', e.version::text,
      'occurred_at', postbox.time_of_micros(e.occurred), 'state', e.state,
      'place', e.place::text,
      'published_at', CASE WHEN o.kind = 'table' AND e.state = 'published'
                           THEN postbox.time_of_micros(e.place) END,
      'attempts', e.attempts, 'next_retry_at', e.next_retry_at,
      'last_error', e.last_error, 'attributes', )" POSTBOX_ATTRIBUTES("e") R"(,
      'expired', (SELECT json_build_object('expires_at', x.expires_at,
                                           'last_of_aggregate', x.last_of_aggregate)
                  FROM postbox.expired_event x
                  WHERE x.publication = $1 AND x.event_id = e.id::text LIMIT 1),
      'bytes', e.bytes, 'payload_hex', encode(e.payload, 'hex'))::text
    FROM e, postbox.publication p JOIN postbox.outbox o ON o.relation = p.outbox
    WHERE p.name = $1
      AND (p.aggregate_types IS NULL OR e.aggregate_type = ANY (p.aggregate_types))
    ORDER BY e.place DESC)";

constexpr char kIncoming[] = R"(
    SELECT json_build_object(
      'inbox', $1::text, 'event_id', r.event_id, 'event_type', r.event_type,
      'aggregate_type', r.aggregate_type, 'aggregate_id', r.aggregate_id,
      'version', r.version::text, 'received_at', postbox.time_of_micros(r.received),
      'outcome', r.outcome, 'detail', r.detail)::text
    FROM postbox.inbox i, postbox.audit_received(i.relation, coalesce(
      nullif($2::uuid[], '{}'), ARRAY(SELECT f.event_id FROM postbox.find_received(
        i.relation, $3, $4::bigint, $5::int) f))) r
    WHERE i.relation::text = $1)";

constexpr char kLetters[] = R"(
    SELECT json_build_object(
      'id', d.id::text, 'inbox', d.inbox::text, 'event_id', d.event_id,
      'event_type', d.event_type, 'aggregate_id', d.aggregate_id, 'version', d.version::text,
      'sqlstate', d.sqlstate, 'error', left(d.error, 500), 'failed_at', d.failed_at,
      'attempts', d.attempts, 'outcome', d.outcome, 'parked', d.parked)::text
    FROM postbox.dead_letter d
    WHERE ($1::text[] IS NOT NULL AND lower(d.event_id) = ANY ($1))
       OR ($2::text IS NOT NULL AND d.aggregate_id = $2)
       OR ($3::text IS NOT NULL AND (d.attributes ->> 'trace_id' = $3
           OR substring(d.attributes ->> 'traceparent' FROM 4 FOR 32) = $3))
    ORDER BY d.id DESC LIMIT $4::int)";

constexpr char kDiscarded[] = R"(
    SELECT json_build_object(
      'inbox', d.inbox::text, 'event_id', d.event_id, 'event_type', d.event_type,
      'aggregate_id', d.aggregate_id, 'version', d.version::text, 'hole', d.hole,
      'reason', d.reason, 'discarded_by', d.discarded_by, 'discarded_at', d.discarded_at)::text
    FROM postbox.discarded_event d
    WHERE ($1::text[] IS NOT NULL AND lower(d.event_id) = ANY ($1))
       OR ($2::text IS NOT NULL AND d.aggregate_id = $2)
    ORDER BY d.id DESC LIMIT $3::int)";

class Search {
 public:
  Search(Session* session, const Arguments& arguments) : session_(session), asked_(arguments) {
    if (const auto id = asked_.Text("id")) ids_.insert(*id);
  }

  Answer Run() {
    for (const std::string& publication : Places(kPublications, "publication")) {
      Collect("outgoing", "publication " + publication, kOutgoing,
              {Parameter::Text(publication), AskedUuid(), asked_.Parameter("key"),
               asked_.Parameter("trace"), Parameter::Text(std::string(kNewest)),
               Number(kMostEvents), Number(asked_.Text("id") ? kMostPayload : kPayloadOfMany)});
    }
    Collect("dead_letters", "dead letters", kLetters,
            {Ids(), asked_.Parameter("key"), asked_.Parameter("trace"), Number(kMostEvents)});
    for (const std::string& inbox : Places(kInboxes, "inbox")) {
      Collect("incoming", "inbox " + inbox, kIncoming,
              {Parameter::Text(inbox), Uuids(), asked_.Parameter("key"),
               Parameter::Text(std::string(kNewest)), Number(kMostEvents)});
    }
    Collect("discarded", "discarded events", kDiscarded,
            {Ids(), asked_.Parameter("key"), Number(kMostEvents)});
    way_["complete"] = complete_ && way_["not_read"].empty();
    return session_->over() ? Refuse(503, "the connection to the database is lost") : Give(way_);
  }

 private:
  std::vector<std::string> Places(const char* sql, const char* chosen) {
    const QueryResult found = session_->Read(sql, {asked_.Parameter(chosen), Number(kMostPlaces)});
    std::vector<std::string> names;
    if (!found.ok()) return NotRead(chosen, found.error()), names;
    for (int row = 0; row < found.rows(); ++row) names.push_back(found.text(row, 0));
    if (names.size() > static_cast<size_t>(kMostPlaces)) {
      names.pop_back();
      NotRead(chosen, "there are more than " + std::to_string(kMostPlaces) + ": choose one");
    }
    return names;
  }

  void Collect(const char* part, const std::string& place, const char* sql,
               const std::vector<Parameter>& values) {
    if (session_->over()) return;
    if (Clock::now() > end_) return NotRead(place, "there was no time left: choose one place");
    if (bytes_ > kMostFoundBytes) return NotRead(place, "there is too much: choose one place");
    const QueryResult found = session_->Read(sql, values);
    if (!found.ok()) return NotRead(place, found.error());
    complete_ = complete_ && found.rows() < kMostEvents;
    for (int row = 0; row < found.rows(); ++row) {
      bytes_ += found.text(row, 0).size();
      JsonValue one = JsonValue::parse(found.text(row, 0), nullptr, /*allow_exceptions=*/false);
      if (one.is_discarded()) {
        NotRead(place, "the database did not return JSON");
        continue;
      }
      DecodePayload(&one);
      if (one["event_id"].is_string()) ids_.insert(one["event_id"].get<std::string>());
      way_[part].push_back(std::move(one));
    }
  }

  void NotRead(const std::string& place, const std::string& reason) {
    way_["not_read"].push_back({{"place", place}, {"reason", reason}});
  }

  // Those that were asked for and those that were found.
  Parameter Ids() const { return Parameter::Array(puller::kTextOid, {ids_.begin(), ids_.end()}); }
  static bool IsUuid(const std::string& id) {
    return id.size() == 36 && id.find_first_not_of("0123456789abcdefABCDEF-") == std::string::npos;
  }
  // An id that is no uuid is none of an outbox.
  Parameter AskedUuid() const {
    const auto id = asked_.Text("id");
    return Parameter::Text(id && IsUuid(*id) ? id : std::nullopt);
  }
  Parameter Uuids() const {
    std::string list = "{";
    for (const std::string& id : ids_) {
      if (IsUuid(id)) list += (list.size() > 1 ? "," : "") + id;
    }
    return Parameter::Text(list + "}");
  }

  Session* const session_;
  const Arguments& asked_;
  const Clock::time_point end_ = Clock::now() + kLongestSearch;
  size_t bytes_ = 0;  // of what was found
  std::set<std::string> ids_;
  bool complete_ = true;
  JsonValue way_ = {{"outgoing", JsonValue::array()},
                    {"incoming", JsonValue::array()},
                    {"dead_letters", JsonValue::array()},
                    {"discarded", JsonValue::array()},
                    {"not_read", JsonValue::array()}};
};

}  // namespace

Answer ReadEventWay(Session* session, const Arguments& arguments) {
  int given = 0;
  for (const char* name : {"id", "key", "trace"}) given += arguments.Text(name) ? 1 : 0;
  if (given != 1) return Refuse(400, "give one of id, key and trace");
  return Search(session, arguments).Run();
}

}  // namespace postbox::cli

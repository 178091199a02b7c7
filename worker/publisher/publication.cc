// See publication.h.
#include "worker/publisher/publication.h"

#include "extension/base/statement.h"
#include "extension/shared/settings.h"

namespace postbox::publisher {

namespace {

// Statements without a plan of their own: they run when the configuration changed or a topic broke.
uint64 RunOnce(const char* sql, std::initializer_list<Oid> types,
               std::initializer_list<Datum> values) {
  Statement statement(sql, std::vector<Oid>(types));
  return statement.Run(values);
}

TimestampTz TimeColumn(uint64 row, int column) { return Int64Column(row, column); }

}  // namespace

bool Publication::operator==(const Publication& other) const {
  return name == other.name && outbox == other.outbox && kind == other.kind &&
         topic == other.topic && aggregate_types == other.aggregate_types &&
         filtered == other.filtered && ordering == other.ordering &&
         max_attempts == other.max_attempts && backoff.base == other.backoff.base &&
         backoff.cap == other.backoff.cap && lanes == other.lanes && parked == other.parked &&
         sequence == other.sequence && parked_blocks == other.parked_blocks;
}

std::vector<Publication> LoadPublications() {
  const uint64 rows = RunOnce(
      "SELECT p.name, p.outbox::oid::bigint, o.kind, p.topic, p.aggregate_types, p.ordering, "
      "p.max_attempts, (extract(epoch FROM p.base_backoff) * 1000)::bigint, "
      "(extract(epoch FROM p.max_backoff) * 1000)::bigint, p.on_failure = 'park_key', p.lanes, "
      "coalesce(o.parked::oid::bigint, 0), CASE WHEN o.kind = 'log' THEN "
      "pg_get_serial_sequence(o.relation::text, 'seq')::regclass::oid::bigint ELSE 0 END "
      "FROM postbox.publication p, postbox.outbox o WHERE o.relation = p.outbox ORDER BY p.name",
      {}, {});
  std::vector<Publication> publications;
  for (uint64 row = 0; row < rows; ++row) {
    Publication publication;
    publication.name = TextColumn(row, 1);
    publication.outbox = static_cast<Oid>(Int64Column(row, 2));
    publication.kind = TextColumn(row, 3);
    publication.topic = TextColumn(row, 4);
    publication.filtered = !IsNull(row, 5);
    publication.aggregate_types = TextArrayColumn(row, 5);
    publication.ordering = TextColumn(row, 6);
    publication.max_attempts = Int32Column(row, 7);
    publication.backoff = {std::chrono::milliseconds(Int64Column(row, 8)), 2.0,
                           std::chrono::milliseconds(Int64Column(row, 9))};
    publication.parked_blocks = BoolColumn(row, 10);
    publication.lanes = Int32Column(row, 11);
    publication.parked = static_cast<Oid>(Int64Column(row, 12));
    publication.sequence = static_cast<Oid>(Int64Column(row, 13));
    publications.push_back(std::move(publication));
  }
  return publications;
}

LaneState ReadLane(const std::string& publication) {
  // The one statement here that runs with every claim. It is never destroyed: at exit the server's
  // memory goes without us.
  static Statement& statement = *new Statement(
      "SELECT coalesce(l.attempts, 0), CASE WHEN l.next_retry_at > now() THEN l.next_retry_at END "
      "FROM postbox.publication p LEFT JOIN postbox.lane l ON l.publication = p.name AND l.slice = "
      "0 WHERE p.name = $1",
      {TEXTOID});
  LaneState state;
  if (statement.Run({TextValue(publication)}) == 0) return state;
  state.exists = true;
  state.attempts = Int32Column(0, 1);
  state.rest_until = TimeColumn(0, 2);
  return state;
}

TimestampTz RestLane(const std::string& publication, const std::string& error,
                     const pubsub::BackoffPolicy& backoff) {
  // The row lock of the lane makes workers that fail together take turns; the second one then sees
  // that the lane rests.
  RunOnce(
      "INSERT INTO postbox.lane (publication, slice) SELECT name, 0 FROM postbox.publication WHERE "
      "name = $1 ON CONFLICT DO NOTHING",
      {TEXTOID}, {TextValue(publication)});
  if (RunOnce("SELECT attempts, CASE WHEN next_retry_at > now() THEN next_retry_at END FROM "
              "postbox.lane WHERE publication = $1 AND slice = 0 FOR UPDATE",
              {TEXTOID}, {TextValue(publication)}) == 0) {
    return 0;  // dropped meanwhile
  }
  if (const TimestampTz resting = TimeColumn(0, 2); resting != 0) return resting;
  const int attempts = Int32Column(0, 1) + 1;
  const auto delay = pubsub::BackoffDelay(backoff, attempts, pubsub::JitterRandom());
  const TimestampTz until = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), delay.count());
  RunOnce(
      "UPDATE postbox.lane SET attempts = $2, next_retry_at = $3, last_error = $4 WHERE "
      "publication = $1 AND slice = 0",
      {TEXTOID, INT4OID, TIMESTAMPTZOID, TEXTOID},
      {TextValue(publication), Int32GetDatum(attempts), TimestampTzGetDatum(until),
       TextValue(error)});
  return until;
}

void ClearLane(const std::string& publication) {
  RunOnce(
      "UPDATE postbox.lane SET attempts = 0, next_retry_at = NULL, last_error = NULL WHERE "
      "publication = $1 AND slice = 0 AND attempts > 0",
      {TEXTOID}, {TextValue(publication)});
}

void ClearLanes() {
  RunOnce("UPDATE postbox.lane SET next_retry_at = NULL WHERE next_retry_at IS NOT NULL", {}, {});
}

int PublishTimeout() {
  return std::min(settings().publish_timeout, std::max(1, settings().lease_timeout / 2));
}

}  // namespace postbox::publisher

#include "worker/publisher/store/publication_state.h"

#include "extension/base/statement.h"

namespace postbox::publisher {
namespace {

// Whether what this worker knows of a publication is still so, as far as failures go.
constexpr const char* kIsCurrent =
    " FROM postbox.publication p WHERE p.name OPERATOR(pg_catalog.=) $1 "
    "AND p.outbox OPERATOR(pg_catalog.=) $2 AND p.topic OPERATOR(pg_catalog.=) $3 "
    "AND p.created_at OPERATOR(pg_catalog.=) $4 "
    "AND coalesce(p.credential, '') OPERATOR(pg_catalog.=) $5";

Parameters Current(const Publication& publication) {
  Parameters parameters;
  parameters.AddText(publication.name).AddOid(OIDOID, publication.outbox);
  parameters.AddText(publication.topic);
  parameters.Add(TIMESTAMPTZOID, TimestampTzGetDatum(publication.created_at));
  parameters.AddText(publication.credential);
  return parameters;
}

}  // namespace

Suspension ReadSuspension(const std::string& publication) {
  // It runs with every claim. It is never destroyed: at exit the server's memory goes without us.
  static Statement& statement = *new Statement(
      "SELECT coalesce(s.attempts, 0), CASE WHEN s.next_retry_at OPERATOR(pg_catalog.>) "
      "pg_catalog.now() THEN s.next_retry_at END, s.suspended_since FROM postbox.publication p "
      "LEFT JOIN postbox.publication_state s ON s.publication OPERATOR(pg_catalog.=) p.name "
      "WHERE p.name OPERATOR(pg_catalog.=) $1",
      {TEXTOID});
  Suspension state;
  if (statement.Run({TextValue(publication)}) == 0) return state;
  state.publication_exists = true;
  state.attempts = Int32Column(0, 1);
  state.retry_at = Int64Column(0, 2);
  state.since = Int64Column(0, 3);
  return state;
}

TimestampTz Suspend(const Publication& publication, const std::string& error,
                    const pubsub::BackoffPolicy& backoff, TimestampTz earliest) {
  // How often a publication without a state has failed in a row is not known.
  constexpr int kUnknownAttempts = 3;
  Parameters name;
  name.AddText(publication.name);
  // The row lock makes workers that fail together take turns; the second one then sees that the
  // publication is suspended.
  const bool has_state =
      Run("SELECT attempts, CASE WHEN next_retry_at OPERATOR(pg_catalog.>) pg_catalog.now() "
          "THEN next_retry_at END FROM postbox.publication_state "
          "WHERE publication OPERATOR(pg_catalog.=) $1 FOR UPDATE",
          name) > 0;
  const TimestampTz suspended = has_state ? Int64Column(0, 2) : 0;
  if (suspended != 0) return suspended;
  const int attempts = has_state ? Int32Column(0, 1) + 1 : kUnknownAttempts;
  // Altering the publication's topic or credential writes the row that is locked now.
  Parameters current = Current(publication);
  if (Run(std::string("SELECT 1") + kIsCurrent, current) == 0) return 0;
  const auto delay = pubsub::BackoffDelay(backoff, attempts, pubsub::JitterRandom());
  const TimestampTz retry_at =
      std::max(earliest, TimestampTzPlusMilliseconds(GetCurrentTimestamp(), delay.count()));
  // A restore may have yet to load the row: one that was made here would be in its way.
  if (!has_state) return retry_at;
  Parameters values;
  values.AddText(publication.name).AddInt(attempts);
  values.Add(TIMESTAMPTZOID, TimestampTzGetDatum(retry_at)).AddText(error);
  Run("UPDATE postbox.publication_state SET attempts = $2, next_retry_at = $3, last_error = $4, "
      "suspended_since = CASE WHEN attempts OPERATOR(pg_catalog.=) 0 THEN pg_catalog.now() "
      "ELSE coalesce(suspended_since, pg_catalog.now()) END "
      "WHERE publication OPERATOR(pg_catalog.=) $1",
      values);
  return retry_at;
}

bool EndSuspension(const Publication& publication) {
  Parameters current = Current(publication);
  return Run(std::string("UPDATE postbox.publication_state SET attempts = 0, next_retry_at = NULL, "
                         "last_error = NULL, suspended_since = NULL "
                         "WHERE publication OPERATOR(pg_catalog.=) $1 "
                         "AND attempts OPERATOR(pg_catalog.>) 0 AND EXISTS (SELECT") +
                 kIsCurrent + ")",
             current) > 0;
}

namespace {

// Of the suspended publications `p` for which the condition holds. Rows that an owner has locked
// are left out: to wait for them would take as long as the owner likes.
void RetryWhere(const char* condition, Parameters& parameters) {
  Run(std::string(
          "UPDATE postbox.publication_state SET attempts = 1, next_retry_at = pg_catalog.now() "
          "WHERE ctid OPERATOR(pg_catalog.=) ANY (ARRAY("
          "SELECT s.ctid FROM postbox.publication_state s JOIN postbox.publication p "
          "ON p.name OPERATOR(pg_catalog.=) s.publication "
          "WHERE s.next_retry_at IS NOT NULL AND s.attempts OPERATOR(pg_catalog.>) 0 AND ") +
          condition + " FOR UPDATE OF s SKIP LOCKED))",
      parameters);
}

}  // namespace

void RetryNow(const std::set<std::string>& credentials) {
  Parameters parameters;
  parameters.Add(TEXTARRAYOID, TextArrayValue({credentials.begin(), credentials.end()}));
  RetryWhere("coalesce(p.credential, '') OPERATOR(pg_catalog.=) ANY ($1)", parameters);
}

void RetryAllNow() {
  Parameters none;
  RetryWhere("true", none);
}

bool StoreSentAgain(const std::string& publication, std::int64_t events) {
  // It is never destroyed: at exit the server's memory goes without us.
  static Statement& statement = *new Statement(
      "UPDATE postbox.publication_state SET sent_again = sent_again OPERATOR(pg_catalog.+) $2, "
      "sent_again_at = pg_catalog.now() WHERE ctid OPERATOR(pg_catalog.=) ANY (ARRAY("
      "SELECT ctid FROM postbox.publication_state WHERE publication OPERATOR(pg_catalog.=) $1 "
      "FOR UPDATE SKIP LOCKED))",
      {TEXTOID, INT8OID});
  return statement.Run({TextValue(publication), Int64GetDatum(events)}) > 0;
}

}  // namespace postbox::publisher

#include "worker/puller/config.h"

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "proto/rules/resource_name.h"
#include "worker/puller/log.h"

namespace postbox::puller {
namespace {

// A session that does not load the library does not know the settings of the extension: then
// current_setting has no more than what was set, and every role may read it.
constexpr char kQuery[] = R"(
    SELECT s.name, s.inbox::oid, s.inbox::text, s.subscription, s.max_outstanding_messages,
           s.max_outstanding_bytes, s.appliers, s.batch_size,
           CASE WHEN isfinite(s.batch_delay)
                THEN (extract(epoch FROM s.batch_delay) * 1000)::bigint ELSE -1 END,
           s.on_error, s.max_attempts,
           CASE WHEN isfinite(s.min_backoff)
                THEN (extract(epoch FROM s.min_backoff) * 1000)::bigint ELSE -1 END,
           CASE WHEN isfinite(s.max_backoff)
                THEN (extract(epoch FROM s.max_backoff) * 1000)::bigint ELSE -1 END,
           coalesce(s.dead_letter_topic, ''),
           CASE WHEN s.paused_until > now() THEN s.paused_reason END,
           coalesce(current_setting('postbox.project_id', true), ''),
           -- NULL if the role may not read it.
           CASE WHEN pg_has_role('pg_read_all_settings', 'USAGE')
                  OR NOT EXISTS (SELECT FROM pg_catalog.pg_settings
                                 WHERE name = 'postbox.project_id')
                THEN coalesce(current_setting('postbox.endpoint', true), '') END,
           coalesce(current_setting('postbox.quota_project', true), ''),
           EXISTS (SELECT FROM postbox.inbox i JOIN pg_catalog.pg_class c ON c.oid = i.relation
                   WHERE i.relation = s.inbox),
           CASE WHEN isfinite(s.statement_timeout)
                THEN (extract(epoch FROM s.statement_timeout) * 1000)::bigint ELSE -1 END,
           CASE WHEN isfinite(s.lock_timeout)
                THEN (extract(epoch FROM s.lock_timeout) * 1000)::bigint ELSE -1 END,
           coalesce(s.credential, ''), 'postbox.event'::regtype::oid,
           s.max_parked_keys, s.max_parked_events, s.max_parked_bytes,
           (SELECT json_object_agg(p.name, p.event_types || p.delete_types)::text
              FROM postbox.projection p WHERE p.inbox = s.inbox)
      FROM postbox.subscription s
     -- That of a rebuild is pulled by the process of the rebuild, or by name.
     WHERE $1::text[] = '{}' AND NOT EXISTS (SELECT FROM postbox.projection p
                                              WHERE p.inbox = s.inbox AND p.marks IS NOT NULL)
        OR s.name = ANY($1::text[])
     ORDER BY s.name)";

struct Credential {
  std::string kind, file;
};
using Credentials = std::map<std::string, Credential>;  // by name

std::string Subject(const std::string& name) { return "subscription \"" + name + "\": "; }

// What is wrong with the project that completes a short name; empty if nothing is.
std::string CheckComplete(const std::string& project, const std::string& name) {
  if (pubsub::IsFullResourceName(name)) return "";
  const std::string problem = pubsub::CheckProjectId(project);
  if (problem.empty()) return "";
  return problem + "; pass --project, set postbox.project_id, or write the name as projects/...";
}

// The ranges that create_subscription accepts. A row that was restored or edited may be outside.
struct Range {
  int column;
  const char* name;
  int64_t least, greatest;  // times in milliseconds
};
constexpr int64_t kLongestBackoff = 10 * 60 * 1000;
constexpr int64_t kLongestTimeout = 24 * 60 * 60 * 1000;
constexpr Range kRanges[] = {
    {4, "max_outstanding_messages", 1, 1000000},
    {5, "max_outstanding_bytes", 1, int64_t{1} << 40},
    {6, "appliers", 1, 64},
    {7, "batch_size", 1, 10000},
    {8, "batch_delay in milliseconds", 0, 10 * 1000},
    {10, "max_attempts", 1, 1000},
    {11, "min_backoff in milliseconds", 1, kLongestBackoff},
    {12, "max_backoff in milliseconds", 1, kLongestBackoff},
    {19, "statement_timeout in milliseconds", 0, kLongestTimeout},
    {20, "lock_timeout in milliseconds", 0, kLongestTimeout},
    {23, "max_parked_keys", 1, 1000000},
    {24, "max_parked_events", 1, 10000000},
    {25, "max_parked_bytes", 1, int64_t{1} << 40},
};

std::optional<OnError> ParseOnError(const std::string& text) {
  if (text == "reject") return OnError::kReject;
  if (text == "dead_letter_topic") return OnError::kDeadLetterTopic;
  if (text == "nack") return OnError::kNack;
  if (text == "park_key") return OnError::kParkKey;
  return std::nullopt;
}

// Reads the columns of a row that need no completion. Returns what is wrong with them; empty if
// nothing is.
std::string ReadSettings(const QueryResult& result, int row, SubscriptionConfig* config) {
  if (result.text(row, 18) != "t") {
    return "its inbox " + result.text(row, 2) + " does not exist; drop the subscription, and " +
           "create it again for another inbox";
  }
  for (const Range& range : kRanges) {
    const int64_t value = result.integer(row, range.column);
    if (value >= range.least && value <= range.greatest) continue;
    return std::string(range.name) + " must be between " + std::to_string(range.least) + " and " +
           std::to_string(range.greatest) + ", not " + std::to_string(value);
  }
  const std::optional<OnError> on_error = ParseOnError(result.text(row, 9));
  if (!on_error) {
    return "unknown on_error \"" + result.text(row, 9) +
           "\"; it is reject, park_key, dead_letter_topic or nack";
  }
  config->inbox = static_cast<Oid>(result.integer(row, 1));
  config->inbox_name = result.text(row, 2);
  config->event_type = static_cast<Oid>(result.integer(row, 22));
  config->max_outstanding_messages = result.integer(row, 4);
  config->max_outstanding_bytes = result.integer(row, 5);
  config->appliers = static_cast<int>(result.integer(row, 6));
  config->batch_size = result.integer(row, 7);
  config->batch_delay = std::chrono::milliseconds(result.integer(row, 8));
  config->on_error = *on_error;
  config->max_attempts = static_cast<int>(result.integer(row, 10));
  config->min_backoff = std::chrono::milliseconds(result.integer(row, 11));
  config->max_backoff = std::chrono::milliseconds(result.integer(row, 12));
  config->statement_timeout = std::chrono::milliseconds(result.integer(row, 19));
  config->lock_timeout = std::chrono::milliseconds(result.integer(row, 20));
  config->most_parked = {result.integer(row, 23), result.integer(row, 24), result.integer(row, 25)};
  if (config->max_backoff < config->min_backoff) return "max_backoff is less than min_backoff";
  // A session that does not load the library checks no settings of the extension, and gRPC ends the
  // process at a header that HTTP/2 does not allow.
  config->quota_project = result.text(row, 17);
  if (config->quota_project.empty()) return "";
  const std::string problem = pubsub::CheckProjectId(config->quota_project);
  return problem.empty() ? "" : "postbox.quota_project cannot be used: " + problem;
}

// Where Pub/Sub is, as given or else as the server says, the same for all rows; empty: the default.
// Nothing if the server does not answer.
std::optional<std::string> FindEndpoint(Connection* connection, const QueryResult& configuration,
                                        const PullOptions& options, std::string* error) {
  constexpr int kColumn = 16;
  if (!options.endpoint.empty() || configuration.rows() == 0) return options.endpoint;
  if (!configuration.null(0, kColumn)) return configuration.text(0, kColumn);
  const QueryResult told = connection->Execute("SELECT postbox.puller_endpoint()");
  if (told.ok()) return told.text(0, 0);
  // It may not be told, or the extension is of a release that does not have the function.
  if (told.sqlstate() != "42501" && told.sqlstate() != "42883") {
    *error = told.error();
    return std::nullopt;
  }
  static bool said = false;  // the configuration is read again and again, by one thread
  if (!std::exchange(said, true)) {
    LogWarn("postbox.endpoint cannot be read, so the default endpoint is used",
            {{"error", told.error()},
             {"hint", "pass --endpoint, or grant INSERT on the inbox to the role"}});
  }
  return std::string();
}

// Completes the names and the endpoint of a row. Returns what is wrong with them; empty if nothing
// is.
std::string CompleteNames(const QueryResult& result, int row, const PullOptions& options,
                          const std::string& endpoint, SubscriptionConfig* config) {
  const std::string project = options.project.empty() ? result.text(row, 15) : options.project;
  std::string problem = pubsub::CheckSubscriptionName(result.text(row, 3));
  if (problem.empty()) problem = CheckComplete(project, result.text(row, 3));
  config->subscription = pubsub::SubscriptionName(project, result.text(row, 3));
  config->spans = options.spans;
  if (problem.empty() && config->on_error == OnError::kDeadLetterTopic) {
    problem = pubsub::CheckTopicName(result.text(row, 13));
    if (problem.empty()) problem = CheckComplete(project, result.text(row, 13));
    config->dead_letter_topic = pubsub::TopicName(project, result.text(row, 13));
  }
  if (problem.empty()) {
    pubsub::ParseEndpoint(endpoint, std::getenv("PUBSUB_EMULATOR_HOST"), &config->endpoint,
                          &problem);
  }
  return problem;
}

// Columns.
constexpr int kPaused = 14;  // the reason; NULL unless it is paused
constexpr int kCredential = 21;
constexpr int kProjections = 26;  // an object: event types by the name of the projection

std::string NoCredential(const std::string& name) {
  return "credential \"" + name + "\" does not exist; create it with postbox.create_credential()";
}

// The credentials of the database, if a row or an option names any. Nothing if it does not answer,
// or does not have one that an option names and `must_exist` is true.
std::optional<Credentials> FindCredentials(Connection* connection, const QueryResult& configuration,
                                           const PullOptions& options, bool must_exist,
                                           std::string* error) {
  Credentials credentials;
  bool any = !options.credentials.empty();
  for (int row = 0; row < configuration.rows(); ++row) {
    any = any || !configuration.text(row, kCredential).empty();
  }
  if (!any) return credentials;
  const QueryResult result =
      connection->Execute("SELECT name, kind, coalesce(file, '') FROM postbox.credential");
  if (!result.ok()) {
    *error = result.error();
    return std::nullopt;
  }
  for (int row = 0; row < result.rows(); ++row) {
    credentials.emplace(result.text(row, 0), Credential{result.text(row, 1), result.text(row, 2)});
  }
  for (const auto& [name, file] : options.credentials) {
    const auto found = credentials.find(name);
    if (found != credentials.end()) {
      found->second = {"file", file};
    } else if (must_exist) {
      *error = NoCredential(name);
      return std::nullopt;
    }
  }
  return credentials;
}

// It may be a mistake to give a file for a credential that no subscription has.
void WarnOfUnused(const PullOptions& options, const QueryResult& configuration) {
  std::set<std::string> used;
  for (int row = 0; row < configuration.rows(); ++row) {
    used.insert(configuration.text(row, kCredential));
  }
  for (const auto& [name, file] : options.credentials) {
    if (used.contains(name)) continue;
    LogWarn("no subscription uses this credential",
            {{"credential", name}, {"hint", "see --credential and --subscription"}});
  }
}

// Whose identity the subscription has. Returns what is wrong with it; empty if nothing is.
std::string ChooseCredential(const Credentials& credentials, const std::string& name,
                             SubscriptionConfig* config) {
  if (name.empty()) return "";
  const auto found = credentials.find(name);
  if (found == credentials.end()) return NoCredential(name);
  const auto& [kind, file] = found->second;
  if (kind == "key") {
    return "credential \"" + name +
           "\" has its secret in the database, which postbox pull cannot use; " +
           "change it to kind file, or pass a file with --credential";
  }
  if (kind == "file") config->credential.file = file;
  config->credential.metadata_server = kind == "metadata";
  return "";
}

}  // namespace

std::optional<Subscriptions> LoadConfig(Connection* connection, const PullOptions& options,
                                        bool must_exist, std::string* error) {
  std::vector<std::optional<std::string_view>> names(options.subscriptions.begin(),
                                                     options.subscriptions.end());
  QueryResult result = connection->Execute(kQuery, {Parameter::Array(kTextOid, names)});
  if (!result.ok()) {
    const bool missing = result.sqlstate() == "42P01" || result.sqlstate() == "3F000";
    *error = missing ? "the extension postbox is not installed in this database (CREATE EXTENSION "
                       "postbox)"
                     : result.error();
    return std::nullopt;
  }

  const std::optional<std::string> endpoint = FindEndpoint(connection, result, options, error);
  if (!endpoint) return std::nullopt;
  const std::optional<Credentials> credentials =
      FindCredentials(connection, result, options, must_exist, error);
  if (!credentials) return std::nullopt;
  Subscriptions subscriptions;
  std::set<std::string> found;
  for (int row = 0; row < result.rows(); ++row) {
    SubscriptionConfig config;
    config.name = result.text(row, 0);
    found.insert(config.name);
    if (!result.null(row, kProjections)) {
      subscriptions.projections[config.name] =
          nlohmann::json::parse(result.text(row, kProjections)).get<ProjectionTypes>();
    }
    if (!result.null(row, kPaused)) {
      subscriptions.paused.emplace(config.name, result.text(row, kPaused));
      continue;
    }
    std::string problem = ReadSettings(result, row, &config);
    if (problem.empty()) problem = CompleteNames(result, row, options, *endpoint, &config);
    if (problem.empty()) {
      problem = ChooseCredential(*credentials, result.text(row, kCredential), &config);
    }
    if (problem.empty()) {
      subscriptions.good.emplace(config.name, std::move(config));
    } else {
      subscriptions.wrong.emplace(config.name, std::move(problem));
    }
  }
  if (must_exist) WarnOfUnused(options, result);
  for (const std::string& name : options.subscriptions) {
    if (must_exist && !found.contains(name)) {
      *error = Subject(name) +
               "it does not exist in postbox.subscription; create it with "
               "postbox.create_subscription()";
      return std::nullopt;
    }
  }
  return subscriptions;
}

}  // namespace postbox::puller

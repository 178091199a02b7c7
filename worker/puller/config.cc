#include "worker/puller/config.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "proto/rules/resource_name.h"

namespace postbox::puller {
namespace {

// A session that does not load the library does not know the settings of the extension. Then
// current_setting returns NULL.
constexpr char kQuery[] = R"(
    SELECT s.name, s.inbox::oid, s.inbox::text, s.subscription, s.max_outstanding_messages,
           s.max_outstanding_bytes, s.appliers, s.batch_size,
           (extract(epoch FROM s.batch_delay) * 1000)::bigint, s.on_error, s.max_attempts,
           (extract(epoch FROM s.min_backoff) * 1000)::bigint,
           (extract(epoch FROM s.max_backoff) * 1000)::bigint,
           coalesce(s.dead_letter_topic, ''), s.enabled,
           coalesce(current_setting('postbox.project_id', true), ''),
           coalesce(current_setting('postbox.endpoint', true), ''),
           coalesce(current_setting('postbox.quota_project', true), '')
      FROM postbox.subscription s
     WHERE $1::text[] = '{}' OR s.name = ANY($1::text[])
     ORDER BY s.name)";

std::string Subject(const std::string& name) { return "subscription \"" + name + "\": "; }

// What is wrong with the project that completes a short name; empty if nothing is.
std::string CheckComplete(const std::string& project, const std::string& name) {
  if (pubsub::IsFullResourceName(name)) return "";
  const std::string problem = pubsub::CheckProjectId(project);
  if (problem.empty()) return "";
  return problem + "; pass --project, set postbox.project_id, or write the name as projects/...";
}

// The columns of a row that are taken as they are, within the range of their types.
SubscriptionConfig ReadSettings(const QueryResult& result, int row) {
  SubscriptionConfig config;
  config.name = result.text(row, 0);
  config.inbox = static_cast<Oid>(result.integer(row, 1));
  config.inbox_name = result.text(row, 2);
  config.max_outstanding_messages = std::max<int64_t>(result.integer(row, 4), 1);
  config.max_outstanding_bytes = std::max<int64_t>(result.integer(row, 5), 1);
  config.appliers = static_cast<int>(std::clamp<int64_t>(result.integer(row, 6), 1, 64));
  config.batch_size = std::max<int64_t>(result.integer(row, 7), 1);
  config.batch_delay = std::chrono::milliseconds(std::max<int64_t>(result.integer(row, 8), 0));
  const std::string on_error = result.text(row, 9);
  config.on_error = on_error == "dead_letter_topic" ? OnError::kDeadLetterTopic
                    : on_error == "nack"            ? OnError::kNack
                                                    : OnError::kReject;
  config.max_attempts = static_cast<int>(std::max<int64_t>(result.integer(row, 10), 1));
  config.min_backoff = std::chrono::milliseconds(std::max<int64_t>(result.integer(row, 11), 1));
  config.max_backoff =
      std::max(config.min_backoff, std::chrono::milliseconds(result.integer(row, 12)));
  config.quota_project = result.text(row, 17);
  return config;
}

// Completes the names and the endpoint of a row. Returns what is wrong with them; empty if nothing
// is.
std::string CompleteNames(const QueryResult& result, int row, const PullOptions& options,
                          SubscriptionConfig* config) {
  const std::string project = options.project.empty() ? result.text(row, 15) : options.project;
  const std::string endpoint = options.endpoint.empty() ? result.text(row, 16) : options.endpoint;
  std::string problem = pubsub::CheckSubscriptionName(result.text(row, 3));
  if (problem.empty()) problem = CheckComplete(project, result.text(row, 3));
  config->subscription = pubsub::SubscriptionName(project, result.text(row, 3));
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

}  // namespace

std::optional<std::map<std::string, SubscriptionConfig>> LoadConfig(Connection* connection,
                                                                    const PullOptions& options,
                                                                    bool must_exist,
                                                                    std::string* error) {
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

  std::map<std::string, SubscriptionConfig> configs;
  std::vector<std::string> found;
  for (int row = 0; row < result.rows(); ++row) {
    found.push_back(result.text(row, 0));
    if (result.text(row, 14) != "t") continue;  // not enabled
    SubscriptionConfig config = ReadSettings(result, row);
    const std::string problem = CompleteNames(result, row, options, &config);
    if (!problem.empty()) {
      *error = Subject(config.name) + problem;
      return std::nullopt;
    }
    configs.emplace(config.name, std::move(config));
  }
  for (const std::string& name : options.subscriptions) {
    if (must_exist && std::find(found.begin(), found.end(), name) == found.end()) {
      *error = Subject(name) +
               "it does not exist in postbox.subscription; create it with "
               "postbox.create_subscription()";
      return std::nullopt;
    }
  }
  return configs;
}

}  // namespace postbox::puller

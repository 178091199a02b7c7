#include "worker/cli/provision/database_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>

#include "proto/rules/limits.h"
#include "proto/rules/resource_name.h"
#include "worker/cli/base/operator_session.h"
#include "worker/cli/provision/document.h"
#include "worker/cli/provision/fields.h"
#include "worker/cli/provision/section.h"

namespace postbox::cli {
namespace {

constexpr char kHead[] =
    "# Written by postbox provision --from-database. docs/guides/provision.md lists all keys;\n"
    "# one that is missing has its default. The database does not know who may publish and\n"
    "# subscribe: add publishers to topics, subscribers to subscriptions, and project_number\n"
    "# for the rights of dead letters.\n";

// The topic of a subscription as its name tells it by the convention, or "".
std::string TopicByName(const std::string& subscription, const std::set<std::string>& topics) {
  const bool full = pubsub::IsFullResourceName(subscription);
  const size_t slash = subscription.rfind('/');
  const std::string id = full ? subscription.substr(slash + 1) : subscription;
  // The longest topic of this database that the id continues.
  std::string found;
  for (const std::string& topic : topics) {
    const std::string topic_id = topic.substr(topic.rfind('/') + 1);
    if (id.starts_with(topic_id + ".") && topic_id.size() > found.size()) found = topic_id;
  }
  if (found.empty() && pubsub::CheckSubscriptionConvention(id).empty()) {
    found = id.substr(0, id.rfind('.'));
  }
  if (found.empty() || !full) return found;
  constexpr size_t kBegin = std::string_view("projects/").size();
  return pubsub::TopicName(subscription.substr(kBegin, subscription.find('/', kBegin) - kBegin),
                           found);
}

std::string SubscriptionText(const DatabaseSubscription& one, const std::set<std::string>& topics,
                             std::vector<std::string>* warnings) {
  const std::string topic = TopicByName(one.subscription, topics);
  std::string text = "  - name: " + Quoted(one.subscription) + "\n    topic: " + Quoted(topic);
  if (topic.empty()) {
    text += "  # to be filled in: the name does not show it";
    warnings->push_back("the topic of subscription " + one.subscription +
                        " is not in the database, and its name does not show it: fill it in");
  }
  text += "\n";
  // Pub/Sub may not keep messages for longer than the inbox remembers events.
  if (one.inbox_retention > 0 && one.inbox_retention < pubsub::kDefaultRetentionSeconds) {
    const auto kept = std::max<int64_t>(pubsub::kMinRetentionSeconds, one.inbox_retention);
    text += "    retention: " + DurationText(kept) + "\n";
  }
  const int64_t attempts = std::clamp<int64_t>(one.max_attempts, pubsub::kMinDeliveryAttempts,
                                               pubsub::kMaxDeliveryAttempts);
  const bool moved = !one.dead_letter_topic.empty();
  if (!moved && attempts == pubsub::kDefaultDeliveryAttempts) return text;
  text += "    dead_letter:\n";
  if (moved) text += "      topic: " + Quoted(one.dead_letter_topic) + "\n";
  text += "      max_attempts: " + std::to_string(attempts) + "\n";
  return text;
}

// Returns an error; empty if there is none.
std::string ReadResources(puller::Connection* connection, DatabaseResources* resources) {
  const puller::QueryResult topics = connection->Execute(
      "SELECT DISTINCT p.topic COLLATE \"C\" FROM postbox.publication p ORDER BY 1");
  if (!topics.ok()) return topics.error();
  for (int row = 0; row < topics.rows(); ++row) resources->topics.push_back(topics.text(row, 0));
  const puller::QueryResult rows = connection->Execute(
      "SELECT s.subscription, max(s.max_attempts), "
      "min(coalesce(extract(epoch FROM i.retention), 0))::bigint, "
      "coalesce(max(s.dead_letter_topic) FILTER (WHERE s.on_error = 'dead_letter_topic'), '') "
      "FROM postbox.subscription s LEFT JOIN postbox.inbox i ON i.relation = s.inbox "
      "GROUP BY s.subscription ORDER BY s.subscription COLLATE \"C\"");
  if (!rows.ok()) return rows.error();
  for (int row = 0; row < rows.rows(); ++row) {
    resources->subscriptions.push_back(
        {rows.text(row, 0), rows.integer(row, 1), rows.integer(row, 2), rows.text(row, 3)});
  }
  return "";
}

// Never over a file that is there.
int WriteNewFile(const std::string& name, const std::string& text) {
  const int file = open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0) {
    return Fail(name + ": " + std::strerror(errno),
                errno == EEXIST ? "name another file, or remove this one" : "");
  }
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t size = write(file, text.data() + written, text.size() - written);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    written += static_cast<size_t>(size);
  }
  if (close(file) == 0 && written == text.size()) return 0;
  unlink(name.c_str());  // what is there of it would be in the way of the next try
  return Fail(name + ": cannot be written", "check the free space on its disk");
}

}  // namespace

std::string DatabaseFileText(const DatabaseResources& resources,
                             std::vector<std::string>* warnings) {
  std::string text = kHead;
  if (resources.project.empty()) {
    warnings->emplace_back("the database has no postbox.project_id: fill in project");
  }
  text += "project: " + Quoted(resources.project) + "\n";
  const std::set<std::string> topics(resources.topics.begin(), resources.topics.end());
  if (!topics.empty()) text += "topics:\n";
  for (const std::string& topic : topics) text += "  - name: " + Quoted(topic) + "\n";
  if (!resources.subscriptions.empty()) text += "subscriptions:\n";
  for (const DatabaseSubscription& one : resources.subscriptions) {
    text += SubscriptionText(one, topics, warnings);
  }
  return text;
}

std::optional<DatabaseResources> ReadDatabase(const PlaceOptions& place, Failure* failure) {
  std::string error;
  const auto connection = OpenDatabase(place.dsn, "postbox provision", &error);
  if (!connection) {
    *failure = {error, ConnectionRemedy(error)};
    return std::nullopt;
  }
  // The endpoint is not needed.
  PubSubPlace told{.project = place.project, .endpoint = "-", .quota_project = ""};
  DatabaseResources resources;
  error = AskForPlace(connection.get(), &told);
  if (error.empty()) error = ReadResources(connection.get(), &resources);
  if (!error.empty()) {
    *failure = {
        "the configuration cannot be read: " + error,
        "run CREATE EXTENSION postbox or ALTER EXTENSION postbox UPDATE in the database, or "
        "name another one with PGDATABASE or dbname=... in --dsn"};
    return std::nullopt;
  }
  resources.project = told.project;
  return resources;
}

int WriteDatabaseFile(const PlaceOptions& place, const std::string& file) {
  Failure failure;
  const auto resources = ReadDatabase(place, &failure);
  if (!resources) return Fail(failure.problem, failure.remedy);
  std::vector<std::string> warnings;
  const std::string text = DatabaseFileText(*resources, &warnings);
  for (const std::string& one : warnings) std::fprintf(stderr, "warning: %s\n", one.c_str());
  if (!file.empty() && file != "-") return WriteNewFile(file, text);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

}  // namespace postbox::cli

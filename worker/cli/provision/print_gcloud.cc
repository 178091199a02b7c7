#include <algorithm>
#include <map>

#include "worker/cli/provision/fields.h"
#include "worker/cli/provision/print.h"

namespace postbox::cli {
namespace {

// A command of gcloud, one option a line.
class GcloudCommand {
 public:
  GcloudCommand(const std::string& words, const std::string& name) {
    text_ = "gcloud pubsub " + words + " " + ShellQuoted(IdOf(name));
    Option("project", ProjectOfName(name));
  }
  void Option(const std::string& name, const std::string& value) {
    text_ += " \\\n  --" + name + "=" + ShellQuoted(value);
  }
  void Flag(const std::string& name) { text_ += " \\\n  --" + name; }
  void Flag(const std::string& name, bool on) { Flag(on ? name : "no-" + name); }
  std::string Text() const { return text_ + "\n"; }

 private:
  std::string text_;
};

template <class Map>
void AddLabels(const Map& labels, GcloudCommand* command) {
  const std::map<std::string, std::string> sorted(labels.begin(), labels.end());
  std::string text;
  for (const auto& [key, value] : sorted) text += (text.empty() ? "" : ",") + key + "=" + value;
  if (!text.empty()) command->Option("labels", text);
}

std::string SchemaCommand(const pb::Schema& schema) {
  GcloudCommand command("schemas create", schema.name());
  command.Option("type", schema.type() == pb::Schema::AVRO ? "avro" : "protocol-buffer");
  command.Option("definition", schema.definition());
  return command.Text();
}

std::string TopicCommand(const pb::Topic& topic) {
  GcloudCommand command("topics create", topic.name());
  if (topic.has_message_retention_duration()) {
    command.Option("message-retention-duration", Seconds(topic.message_retention_duration()));
  }
  AddLabels(topic.labels(), &command);
  if (!topic.kms_key_name().empty()) command.Option("topic-encryption-key", topic.kms_key_name());
  const auto& policy = topic.message_storage_policy();
  std::string regions;
  for (const std::string& region : policy.allowed_persistence_regions()) {
    regions += (regions.empty() ? "" : ",") + region;
  }
  if (!regions.empty()) command.Option("message-storage-policy-allowed-regions", regions);
  if (policy.enforce_in_transit()) command.Flag("message-storage-policy-enforce-in-transit");
  const auto& settings = topic.schema_settings();
  if (!settings.schema().empty()) {
    command.Option("schema", settings.schema());
    command.Option("message-encoding", settings.encoding() == pb::BINARY ? "binary" : "json");
    if (!settings.first_revision_id().empty()) {
      command.Option("first-revision-id", settings.first_revision_id());
    }
    if (!settings.last_revision_id().empty()) {
      command.Option("last-revision-id", settings.last_revision_id());
    }
  }
  return command.Text();
}

std::string SubscriptionCommand(const pb::Subscription& subscription) {
  GcloudCommand command("subscriptions create", subscription.name());
  command.Option("topic", subscription.topic());
  if (subscription.enable_message_ordering()) command.Flag("enable-message-ordering");
  if (subscription.enable_exactly_once_delivery()) command.Flag("enable-exactly-once-delivery");
  if (!subscription.filter().empty()) command.Option("message-filter", subscription.filter());
  command.Option("ack-deadline", std::to_string(subscription.ack_deadline_seconds()));
  command.Option("message-retention-duration", Seconds(subscription.message_retention_duration()));
  command.Flag("retain-acked-messages", subscription.retain_acked_messages());
  const auto& expiration = subscription.expiration_policy();
  command.Option("expiration-period", expiration.has_ttl() ? Seconds(expiration.ttl()) : "never");
  if (subscription.has_retry_policy()) {
    command.Option("min-retry-delay", Seconds(subscription.retry_policy().minimum_backoff()));
    command.Option("max-retry-delay", Seconds(subscription.retry_policy().maximum_backoff()));
  }
  if (subscription.has_dead_letter_policy()) {
    const auto& policy = subscription.dead_letter_policy();
    command.Option("dead-letter-topic", policy.dead_letter_topic());
    command.Option("max-delivery-attempts", std::to_string(policy.max_delivery_attempts()));
  }
  AddLabels(subscription.labels(), &command);
  return command.Text();
}

std::string GrantCommand(const Grant& grant) {
  const bool on_topic = grant.resource.find("/topics/") != std::string::npos;
  GcloudCommand command(
      std::string(on_topic ? "topics" : "subscriptions") + " add-iam-policy-binding",
      grant.resource);
  command.Option("member", grant.member);
  command.Option("role", grant.role);
  return command.Text();
}

}  // namespace

std::string ShellQuoted(const std::string& text) {
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-./:@%+,=").find(c) != std::string_view::npos;
  });
  if (plain) return text;
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string PrintGcloud(const Desired& desired) {
  std::string text =
      "#!/bin/sh\n# Written by postbox provision --print gcloud. It stops at the first object that "
      "already exists.\nset -eu\n";
  for (const pb::Schema& schema : desired.schemas) text += SchemaCommand(schema);
  for (const auto& topic : desired.topics) text += TopicCommand(topic.resource);
  for (const Grant& grant : desired.grants) {
    if (grant.resource.find("/topics/") != std::string::npos) text += GrantCommand(grant);
  }
  for (const auto& subscription : desired.subscriptions) {
    text += SubscriptionCommand(subscription.resource);
  }
  for (const Grant& grant : desired.grants) {
    if (grant.resource.find("/topics/") == std::string::npos) text += GrantCommand(grant);
  }
  return text;
}

}  // namespace postbox::cli

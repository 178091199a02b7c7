#include "worker/cli/provision/fields.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "proto/rules/limits.h"
#include "proto/rules/utf8.h"
#include "worker/cli/provision/section.h"

namespace postbox::cli {
namespace {

std::string Show(const google::protobuf::Duration& duration) {
  if (duration.nanos() == 0) return DurationText(duration.seconds());
  return std::to_string(duration.seconds()) + "s and " + std::to_string(duration.nanos()) + "ns";
}

template <class Map>
std::string ShowLabels(const Map& labels) {
  const std::map<std::string, std::string> sorted(labels.begin(), labels.end());
  std::string text;
  for (const auto& [key, value] : sorted) {
    text += (text.empty() ? "" : ", ") + key + "=" + value;
  }
  return "{" + text + "}";
}

std::string ShowBool(bool value) { return value ? "true" : "false"; }

std::string ShowRegions(const pb::Topic& topic) {
  const auto& policy = topic.message_storage_policy();
  std::vector<std::string> regions(policy.allowed_persistence_regions().begin(),
                                   policy.allowed_persistence_regions().end());
  std::sort(regions.begin(), regions.end());
  std::string text;
  for (const std::string& region : regions) text += (text.empty() ? "" : ", ") + region;
  return "[" + text + "]" + (policy.enforce_in_transit() ? ", enforced in transit" : "");
}

std::string ShowSchema(const pb::Topic& topic) {
  const auto& settings = topic.schema_settings();
  if (settings.schema().empty()) return "none";
  std::string text = settings.schema();
  text += settings.encoding() == pb::BINARY ? ", binary" : ", json";
  if (!settings.first_revision_id().empty()) text += ", from " + settings.first_revision_id();
  if (!settings.last_revision_id().empty()) text += ", to " + settings.last_revision_id();
  return text;
}

std::string ShowTopicRetention(const pb::Topic& topic) {
  return topic.has_message_retention_duration() ? Show(topic.message_retention_duration()) : "none";
}

std::string ShowKey(const pb::Topic& topic) {
  return topic.kms_key_name().empty() ? "none" : topic.kms_key_name();
}

std::string ShowAckDeadline(const pb::Subscription& subscription) {
  const int seconds = subscription.ack_deadline_seconds();
  return DurationText(seconds == 0 ? pubsub::kDefaultAckDeadlineSeconds : seconds);
}

std::string ShowRetention(const pb::Subscription& subscription) {
  return subscription.has_message_retention_duration()
             ? Show(subscription.message_retention_duration())
             : DurationText(pubsub::kDefaultRetentionSeconds);
}

std::string ShowExpiration(const pb::Subscription& subscription) {
  if (!subscription.has_expiration_policy()) return "the service's default";
  return subscription.expiration_policy().has_ttl() ? Show(subscription.expiration_policy().ttl())
                                                    : "never";
}

std::string ShowDeadLetters(const pb::Subscription& subscription) {
  const auto& policy = subscription.dead_letter_policy();
  if (policy.dead_letter_topic().empty()) return "none";
  const int attempts = policy.max_delivery_attempts();
  return policy.dead_letter_topic() + " after " +
         std::to_string(attempts == 0 ? pubsub::kDefaultDeliveryAttempts : attempts) + " attempts";
}

std::string ShowRetry(const pb::Subscription& subscription) {
  if (!subscription.has_retry_policy()) return "none";
  const auto& policy = subscription.retry_policy();
  return (policy.has_minimum_backoff() ? Show(policy.minimum_backoff())
                                       : DurationText(pubsub::kDefaultMinRetryBackoffSeconds)) +
         " to " +
         (policy.has_maximum_backoff() ? Show(policy.maximum_backoff())
                                       : DurationText(pubsub::kDefaultMaxRetryBackoffSeconds));
}

constexpr ResourceField<pb::Topic> kTopicFields[] = {
    {"message_retention_duration", "retention", ShowTopicRetention},
    {"labels", "labels", [](const pb::Topic& topic) { return ShowLabels(topic.labels()); }},
    {"kms_key_name", "kms_key", ShowKey},
    {"message_storage_policy", "storage_regions", ShowRegions},
    {"schema_settings", "schema", ShowSchema},
};

constexpr ResourceField<pb::Subscription> kSubscriptionFields[] = {
    {"topic", "topic", [](const pb::Subscription& one) { return one.topic(); }, false},
    {"filter", "filter", [](const pb::Subscription& one) { return Quoted(one.filter()); }, false},
    {"enable_message_ordering", "ordering",
     [](const pb::Subscription& one) { return ShowBool(one.enable_message_ordering()); }, false},
    {"enable_exactly_once_delivery", "exactly_once",
     [](const pb::Subscription& one) { return ShowBool(one.enable_exactly_once_delivery()); }},
    {"ack_deadline_seconds", "ack_deadline", ShowAckDeadline},
    {"message_retention_duration", "retention", ShowRetention},
    {"retain_acked_messages", "retain_acked",
     [](const pb::Subscription& one) { return ShowBool(one.retain_acked_messages()); }},
    {"retry_policy", "retry", ShowRetry},
    {"expiration_policy", "expiration", ShowExpiration},
    {"dead_letter_policy", "dead_letter", ShowDeadLetters},
    {"labels", "labels", [](const pb::Subscription& one) { return ShowLabels(one.labels()); }},
};

}  // namespace

std::string Quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::span<const ResourceField<pb::Topic>> TopicFields() { return kTopicFields; }
std::span<const ResourceField<pb::Subscription>> SubscriptionFields() {
  return kSubscriptionFields;
}

bool SameDefinition(const pb::Schema& left, const pb::Schema& right) {
  if (left.definition() == right.definition()) return true;
  const auto one = nlohmann::json::parse(left.definition(), nullptr, false);
  const auto other = nlohmann::json::parse(right.definition(), nullptr, false);
  return !one.is_discarded() && one == other;
}

const char* TypeName(pb::Schema::Type type) {
  if (type == pb::Schema::AVRO) return "avro";
  return type == pb::Schema::PROTOCOL_BUFFER ? "protocol_buffer" : "unknown";
}

std::string IdOf(const std::string& name) { return name.substr(name.rfind('/') + 1); }

std::string ProjectOfName(const std::string& name) {
  constexpr size_t kBegin = std::string_view("projects/").size();
  return name.substr(kBegin, name.find('/', kBegin) - kBegin);
}

}  // namespace postbox::cli

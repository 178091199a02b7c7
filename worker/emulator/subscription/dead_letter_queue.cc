#include "worker/emulator/subscription/dead_letter_queue.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace postbox::emulator {
namespace {

namespace pb = google::pubsub::v1;

// Adds the attributes that tell a consumer of a dead-letter topic where a message comes from.
pb::PubsubMessage MakeDeadLetter(const StoredMessage& message, absl::string_view subscription,
                                 int attempts) {
  pb::PubsubMessage copy = message.Parse();
  const std::vector<absl::string_view> parts = absl::StrSplit(subscription, '/');
  constexpr absl::string_view kPrefix = "CloudPubSubDeadLetterSource";
  auto& attributes = *copy.mutable_attributes();
  attributes[absl::StrCat(kPrefix, "DeliveryCount")] = absl::StrCat(attempts);
  attributes[absl::StrCat(kPrefix, "Subscription")] = std::string(parts.back());
  attributes[absl::StrCat(kPrefix, "SubscriptionProject")] =
      parts.size() > 1 ? std::string(parts[1]) : "";
  attributes[absl::StrCat(kPrefix, "TopicPublishTime")] =
      absl::FormatTime(absl::RFC3339_full, message.published, absl::UTCTimeZone());
  return copy;
}

}  // namespace

bool DeadLetterQueue::Take(const pb::Subscription& config, const StoredMessage& message,
                           int failures) {
  if (!config.has_dead_letter_policy()) return false;
  const pb::DeadLetterPolicy& policy = config.dead_letter_policy();
  if (failures < policy.max_delivery_attempts()) return false;
  if (!topic_exists_(policy.dead_letter_topic())) return false;
  letters_.push_back(
      {policy.dead_letter_topic(), MakeDeadLetter(message, config.name(), failures)});
  return true;
}

}  // namespace postbox::emulator

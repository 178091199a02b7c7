#include "worker/emulator/rules/validation.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "worker/emulator/rules/filter.h"
#include "worker/emulator/rules/invalid.h"
#include "worker/emulator/rules/labels.h"
#include "worker/emulator/rules/service_limits.h"
#include "worker/emulator/rules/unsupported.h"

namespace postbox::emulator {
namespace {

namespace pb = google::pubsub::v1;

// What protobuf calls valid: times of the years 1 to 9999, and durations of 10,000 years.
constexpr int64_t kMinTimeSeconds = -62'135'596'800;
constexpr int64_t kMaxTimeSeconds = 253'402'300'799;
constexpr int64_t kMaxDurationSeconds = 315'576'000'000;
constexpr int32_t kNanosInSecond = 1'000'000'000;

// In the words of the service.
absl::Status TooLarge(absl::string_view what, size_t value, size_t most) {
  return Invalid("The value for ", what, " is too large. You passed ", value,
                 " in the request, but the maximum value is ", most, ".");
}

bool IsIdCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         absl::string_view("-_.~+%").find(c) != absl::string_view::npos;
}

absl::Status CheckAckRequestSize(size_t bytes) {
  if (bytes <= kMaxAckRequestBytes) return absl::OkStatus();
  return Invalid("Request payload size exceeds the limit: ", kMaxAckRequestBytes,
                 " bytes. This request has ", bytes, ".");
}

absl::Status CheckDeadline(int seconds, absl::string_view what) {
  if (seconds >= kMinAckDeadlineSeconds && seconds <= kMaxAckDeadlineSeconds) {
    return absl::OkStatus();
  }
  return Invalid(what, " must be ", kMinAckDeadlineSeconds, " to ", kMaxAckDeadlineSeconds,
                 " seconds, not ", seconds);
}

absl::Status CheckModifyDeadline(int seconds) {
  if (seconds >= 0 && seconds <= kMaxModifyAckDeadlineSeconds) return absl::OkStatus();
  return Invalid("an ack deadline must be modified to 0 to ", kMaxModifyAckDeadlineSeconds,
                 " seconds, not ", seconds);
}

absl::Status CheckRange(const google::protobuf::Duration& duration, absl::string_view what,
                        int64_t least, int64_t most) {
  const int64_t seconds = duration.seconds();
  const int32_t nanos = duration.nanos();
  if (nanos < 0 || nanos >= kNanosInSecond) {
    return Invalid(what, " must have 0 to ", kNanosInSecond - 1, " nanos, not ", nanos);
  }
  if (seconds >= least && (seconds < most || (seconds == most && nanos == 0))) {
    return absl::OkStatus();
  }
  return Invalid(what, " must be ", least, " to ", most, " seconds, not ", seconds,
                 nanos > 0 ? absl::StrCat(" and ", nanos, " nanos") : "");
}

absl::Status CheckRetention(const google::protobuf::Duration& retention) {
  return CheckRange(retention, "message_retention_duration", kMinRetentionSeconds,
                    kMaxRetentionSeconds);
}

absl::Status CheckMessage(const pb::PubsubMessage& message) {
  if (message.data().empty() && message.attributes().empty()) {
    return Invalid("a message needs data or at least one attribute");
  }
  if (message.ordering_key().size() > kMaxOrderingKeyBytes) {
    return Invalid("ordering key has ", message.ordering_key().size(), " bytes, at most ",
                   kMaxOrderingKeyBytes);
  }
  if (message.attributes().size() > kMaxAttributes) {
    return Invalid("message has ", message.attributes().size(), " attributes, at most ",
                   kMaxAttributes);
  }
  for (const auto& [key, value] : message.attributes()) {
    if (key.empty()) return Invalid("an attribute key must not be empty");
    if (key.size() > kMaxAttributeKeyBytes) {
      return Invalid("attribute key has ", key.size(), " bytes, at most ", kMaxAttributeKeyBytes);
    }
    // Only googclient_ is allowed, because Google's own clients add such attributes.
    if (absl::StartsWith(key, "goog") && !absl::StartsWith(key, "googclient_")) {
      return Invalid("attribute key \"", key, "\" starts with \"goog\", which is reserved");
    }
    if (value.size() > kMaxAttributeValueBytes) {
      return Invalid("value of attribute \"", key, "\" has ", value.size(), " bytes, at most ",
                     kMaxAttributeValueBytes);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRetryPolicy(const pb::RetryPolicy& policy) {
  const auto& least = policy.minimum_backoff();
  const auto& most = policy.maximum_backoff();
  if (auto s = CheckRange(least, "retry_policy.minimum_backoff", 0, kMaxBackoffSeconds); !s.ok()) {
    return s;
  }
  if (auto s = CheckRange(most, "retry_policy.maximum_backoff", 0, kMaxBackoffSeconds); !s.ok()) {
    return s;
  }
  if (least.seconds() > most.seconds() ||
      (least.seconds() == most.seconds() && least.nanos() > most.nanos())) {
    return Invalid("retry_policy.minimum_backoff must not be greater than maximum_backoff");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckProject(absl::string_view name) {
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '/');
  if (parts.size() == 2 && parts[0] == "projects" && !parts[1].empty()) return absl::OkStatus();
  return Invalid("invalid project \"", name, "\": it must be projects/PROJECT");
}

absl::Status CheckName(absl::string_view name, absl::string_view collection) {
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '/');
  if (parts.size() != 4 || parts[0] != "projects" || parts[1].empty() || parts[2] != collection) {
    return Invalid("invalid resource name \"", name, "\": it must be projects/PROJECT/", collection,
                   "/ID");
  }
  const absl::string_view id = parts[3];
  if (id.size() < kMinIdCharacters || id.size() > kMaxIdCharacters) {
    return Invalid("invalid resource name \"", name, "\": the ID must have ", kMinIdCharacters,
                   " to ", kMaxIdCharacters, " characters, not ", id.size());
  }
  if (!absl::ascii_isalpha(static_cast<unsigned char>(id[0]))) {
    return Invalid("invalid resource name \"", name, "\": the ID must start with a letter");
  }
  if (absl::StartsWith(id, "goog")) {
    return Invalid("invalid resource name \"", name, "\": the ID must not start with \"goog\"");
  }
  for (const char c : id) {
    if (!IsIdCharacter(c)) {
      return Invalid("invalid resource name \"", name,
                     "\": the ID may have only letters, digits and any of -_.~+%");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTime(const google::protobuf::Timestamp& time, absl::string_view what) {
  if (time.seconds() >= kMinTimeSeconds && time.seconds() <= kMaxTimeSeconds && time.nanos() >= 0 &&
      time.nanos() < kNanosInSecond) {
    return absl::OkStatus();
  }
  return Invalid(what, " must be a time of the years 1 to 9999 with 0 to ", kNanosInSecond - 1,
                 " nanos, not ", time.seconds(), " seconds and ", time.nanos(), " nanos");
}

absl::Status CheckPublish(const pb::PublishRequest& request) {
  if (auto s = CheckName(request.topic(), "topics"); !s.ok()) return s;
  if (request.messages().empty()) return Invalid("a publish request needs at least one message");
  if (request.messages_size() > kMaxPublishMessages) {
    return TooLarge("message_count", static_cast<size_t>(request.messages_size()),
                    kMaxPublishMessages);
  }
  if (const size_t bytes = request.ByteSizeLong(); bytes > kMaxPublishBytes) {
    return TooLarge("request_size", bytes, kMaxPublishBytes);
  }
  for (const pb::PubsubMessage& message : request.messages()) {
    if (auto s = CheckMessage(message); !s.ok()) return s;
    if (message.ordering_key() != request.messages(0).ordering_key()) {
      return Invalid("in a publish request all messages must have one ordering key, or none");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTopic(const pb::Topic& topic) {
  if (auto s = CheckName(topic.name(), "topics"); !s.ok()) return s;
  if (auto s = CheckSupported(topic); !s.ok()) return s;
  if (auto s = CheckLabels(topic.labels()); !s.ok()) return s;
  if (topic.has_message_retention_duration()) {
    return CheckRetention(topic.message_retention_duration());
  }
  return absl::OkStatus();
}

void SetDefaults(pb::Subscription* subscription) {
  if (subscription->ack_deadline_seconds() == 0) {
    subscription->set_ack_deadline_seconds(kDefaultAckDeadlineSeconds);
  }
  if (!subscription->has_message_retention_duration()) {
    subscription->mutable_message_retention_duration()->set_seconds(kDefaultRetentionSeconds);
  }
  if (subscription->has_dead_letter_policy() &&
      subscription->dead_letter_policy().max_delivery_attempts() == 0) {
    subscription->mutable_dead_letter_policy()->set_max_delivery_attempts(kMinDeliveryAttempts);
  }
  if (subscription->has_retry_policy()) {
    pb::RetryPolicy* policy = subscription->mutable_retry_policy();
    if (!policy->has_minimum_backoff()) {
      policy->mutable_minimum_backoff()->set_seconds(kDefaultMinBackoffSeconds);
    }
    if (!policy->has_maximum_backoff()) {
      policy->mutable_maximum_backoff()->set_seconds(kMaxBackoffSeconds);
    }
  }
  if (!subscription->has_expiration_policy()) {
    subscription->mutable_expiration_policy()->mutable_ttl()->set_seconds(
        kDefaultExpirationSeconds);
  }
  subscription->mutable_push_config();  // one without fields means pull, and is always returned
  subscription->set_state(pb::Subscription::ACTIVE);
}

absl::Status CheckSubscription(const pb::Subscription& subscription) {
  if (auto s = CheckName(subscription.name(), "subscriptions"); !s.ok()) return s;
  if (auto s = CheckLabels(subscription.labels()); !s.ok()) return s;
  if (auto s = CheckDeadline(subscription.ack_deadline_seconds(), "ack_deadline_seconds");
      !s.ok()) {
    return s;
  }
  if (auto s = CheckRetention(subscription.message_retention_duration()); !s.ok()) return s;
  if (subscription.has_dead_letter_policy()) {
    const pb::DeadLetterPolicy& policy = subscription.dead_letter_policy();
    if (auto s = CheckName(policy.dead_letter_topic(), "topics"); !s.ok()) return s;
    if (policy.max_delivery_attempts() < kMinDeliveryAttempts ||
        policy.max_delivery_attempts() > kMaxDeliveryAttempts) {
      return Invalid("dead_letter_policy.max_delivery_attempts must be ", kMinDeliveryAttempts,
                     " to ", kMaxDeliveryAttempts, ", not ", policy.max_delivery_attempts());
    }
  }
  if (subscription.has_retry_policy()) {
    if (auto s = CheckRetryPolicy(subscription.retry_policy()); !s.ok()) return s;
  }
  if (subscription.expiration_policy().has_ttl()) {
    if (auto s = CheckRange(subscription.expiration_policy().ttl(), "expiration_policy.ttl",
                            kMinExpirationSeconds, kMaxDurationSeconds);
        !s.ok()) {
      return s;
    }
  }
  return subscription.filter().empty() ? absl::OkStatus()
                                       : Filter::Parse(subscription.filter()).status();
}

absl::Status CheckAcknowledge(const pb::AcknowledgeRequest& request) {
  if (auto s = CheckName(request.subscription(), "subscriptions"); !s.ok()) return s;
  if (request.ack_ids().empty()) return Invalid("an acknowledge request needs at least one ack id");
  return CheckAckRequestSize(request.ByteSizeLong());
}

absl::Status CheckModifyAckDeadline(const pb::ModifyAckDeadlineRequest& request) {
  if (auto s = CheckName(request.subscription(), "subscriptions"); !s.ok()) return s;
  if (request.ack_ids().empty()) {
    return Invalid("a modify ack deadline request needs at least one ack id");
  }
  if (auto s = CheckModifyDeadline(request.ack_deadline_seconds()); !s.ok()) return s;
  return CheckAckRequestSize(request.ByteSizeLong());
}

absl::Status CheckPull(const pb::PullRequest& request) {
  if (auto s = CheckName(request.subscription(), "subscriptions"); !s.ok()) return s;
  if (request.max_messages() > 0) return absl::OkStatus();
  return Invalid("max_messages must be at least 1, not ", request.max_messages());
}

absl::Status CheckStreamingPull(const pb::StreamingPullRequest& request, bool first) {
  if (first) {
    if (auto s = CheckName(request.subscription(), "subscriptions"); !s.ok()) return s;
    if (auto s =
            CheckDeadline(request.stream_ack_deadline_seconds(), "stream_ack_deadline_seconds");
        !s.ok()) {
      return s;
    }
  } else {
    if (!request.subscription().empty()) {
      return Invalid("subscription must be set in the first request of a stream only");
    }
    if (request.max_outstanding_messages() != 0 || request.max_outstanding_bytes() != 0) {
      return Invalid(
          "max_outstanding_messages and max_outstanding_bytes must be set in the first request of "
          "a stream only");
    }
    if (request.protocol_version() != 0) {
      return Invalid("protocol_version must be set in the first request of a stream only");
    }
    if (request.stream_ack_deadline_seconds() != 0) {
      if (auto s =
              CheckDeadline(request.stream_ack_deadline_seconds(), "stream_ack_deadline_seconds");
          !s.ok()) {
        return s;
      }
    }
  }
  if (request.modify_deadline_seconds_size() != request.modify_deadline_ack_ids_size()) {
    return Invalid("modify_deadline_seconds has ", request.modify_deadline_seconds_size(),
                   " elements and modify_deadline_ack_ids has ",
                   request.modify_deadline_ack_ids_size());
  }
  for (const int seconds : request.modify_deadline_seconds()) {
    if (auto s = CheckModifyDeadline(seconds); !s.ok()) return s;
  }
  return CheckAckRequestSize(request.ByteSizeLong());
}

}  // namespace postbox::emulator

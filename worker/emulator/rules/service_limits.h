// The limits that Google documents for Pub/Sub, as the emulator enforces them.
//
// This list is separate from proto/rules/limits.h on purpose. The emulator checks the client, and a
// wrong number that both sides share would never be noticed.
#ifndef POSTBOX_WORKER_EMULATOR_RULES_SERVICE_LIMITS_H_
#define POSTBOX_WORKER_EMULATOR_RULES_SERVICE_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace postbox::emulator {

// Publish. The bytes are those of the encoded request, including the name of the topic.
inline constexpr int kMaxPublishMessages = 1000;
inline constexpr size_t kMaxPublishBytes = 10'000'000;
inline constexpr size_t kMaxOrderingKeyBytes = 1024;
inline constexpr size_t kMaxAttributes = 100;
inline constexpr size_t kMaxAttributeKeyBytes = 256;
inline constexpr size_t kMaxAttributeValueBytes = 1024;

// Acknowledge, ModifyAckDeadline and requests on a stream, encoded.
inline constexpr size_t kMaxAckRequestBytes = 524'288;
inline constexpr int kMaxModifyAckDeadlineSeconds = 600;

// Deadlines of subscriptions and streams, in seconds.
inline constexpr int kMinAckDeadlineSeconds = 10;
inline constexpr int kMaxAckDeadlineSeconds = 600;
inline constexpr int kDefaultAckDeadlineSeconds = 10;

// Message retention, in seconds: 10 minutes to 31 days, 7 days when unset.
inline constexpr int64_t kMinRetentionSeconds = 600;
inline constexpr int64_t kMaxRetentionSeconds = 31LL * 86400;
inline constexpr int64_t kDefaultRetentionSeconds = 7LL * 86400;

// A snapshot lives for 7 days, less the age of its oldest unacked message; an hour at least.
inline constexpr int64_t kSnapshotSeconds = 7LL * 86400;
inline constexpr int64_t kMinSnapshotSeconds = 3600;

// Expiration of an unused subscription: at least a day, 31 days when unset.
inline constexpr int64_t kMinExpirationSeconds = 86400;
inline constexpr int64_t kDefaultExpirationSeconds = 31LL * 86400;

// Dead-letter policy.
inline constexpr int kMinDeliveryAttempts = 5;
inline constexpr int kMaxDeliveryAttempts = 100;

// Retry policy: 0..600 s, 10 and 600 when unset.
inline constexpr int64_t kMaxBackoffSeconds = 600;
inline constexpr int64_t kDefaultMinBackoffSeconds = 10;

// Labels of a resource, and the characters of a key and of a value.
inline constexpr size_t kMaxLabels = 64;
inline constexpr size_t kMaxLabelCharacters = 63;

// The members of all bindings of an IAM policy.
inline constexpr int kMaxPolicyMembers = 1500;

// Schemas of a project, and revisions of a schema.
inline constexpr int kMaxSchemas = 10'000;
inline constexpr size_t kMaxSchemaRevisions = 20;

// The filter of a subscription.
inline constexpr size_t kMaxFilterBytes = 256;

// The last part of a topic's, subscription's or snapshot's name.
inline constexpr size_t kMinIdCharacters = 3;
inline constexpr size_t kMaxIdCharacters = 255;

// The most that one response carries, unless a single message is larger.
inline constexpr int kMaxPullMessages = 1000;
inline constexpr size_t kMaxResponseBytes = 1'000'000;

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_RULES_SERVICE_LIMITS_H_

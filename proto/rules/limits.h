// The limits of the Pub/Sub API, each with its source.
//
// Plain header: standard library only. It is included by postbox.so, which refuses at emit what
// Pub/Sub would refuse later, by the publisher worker and by the puller. The embedded emulator does
// not include it: it has its own list of the limits that it enforces.
//
// Sources: "quotas" is cloud.google.com/pubsub/quotas, resource limits. "api" is the comments of
// Google's google/pubsub/v1/pubsub.proto. "clients" is what Google's high-level clients do.

#ifndef POSTBOX_PROTO_RULES_LIMITS_H_
#define POSTBOX_PROTO_RULES_LIMITS_H_

#include <cstddef>

namespace postbox::pubsub {

// Publish (quotas). The bytes of a request are those of the encoded PublishRequest, including tags,
// lengths and the topic field.
inline constexpr std::size_t kMaxRequestMessages = 1000;
inline constexpr std::size_t kMaxRequestBytes = 10'000'000;

// One message (quotas).
inline constexpr std::size_t kMaxAttributes = 100;
inline constexpr std::size_t kMaxAttributeKeyBytes = 256;
inline constexpr std::size_t kMaxAttributeValueBytes = 1024;
inline constexpr std::size_t kMaxOrderingKeyBytes = 1024;
// Attribute keys and resource ids that begin with it are reserved for Google (api).
inline constexpr char kReservedPrefix[] = "goog";

// Resource ids (api, Topic.name and Subscription.name).
inline constexpr std::size_t kMinResourceIdLength = 3;
inline constexpr std::size_t kMaxResourceIdLength = 255;
// No topic name is longer than this: "projects/", a project id (30 characters, more with a domain
// prefix), "/topics/" and an id. A message whose topic is not known yet is checked with this
// length.
inline constexpr std::size_t kMaxTopicNameBytes = 400;

// Acknowledge and ModifyAckDeadline. The service takes requests of 524,288 bytes. Requests with
// 3000 ids have failed in practice. The clients stay below both.
inline constexpr std::size_t kMaxAckRequestBytes = 524'288;
inline constexpr std::size_t kMaxAckIds = 1000;
inline constexpr std::size_t kMaxAckIdBytes = 510 * 1024;

// Ack deadlines, seconds (api). That of a subscription is 10..600. ModifyAckDeadline also takes 0,
// which is a nack.
inline constexpr int kMinAckDeadlineSeconds = 10;
inline constexpr int kMaxAckDeadlineSeconds = 600;
inline constexpr int kDefaultAckDeadlineSeconds = 10;
// The shortest extension of a lease under exactly-once delivery (clients).
inline constexpr int kMinExactlyOnceAckDeadlineSeconds = 60;

// The most messages that a Pull returns, whatever its max_messages (quotas).
inline constexpr int kMaxPullMessages = 1000;

// Dead-letter policy (api).
inline constexpr int kMinDeliveryAttempts = 5;
inline constexpr int kMaxDeliveryAttempts = 100;
inline constexpr int kDefaultDeliveryAttempts = 5;

// Retry policy, seconds (api).
inline constexpr int kMaxRetryBackoffSeconds = 600;
inline constexpr int kDefaultMinRetryBackoffSeconds = 10;
inline constexpr int kDefaultMaxRetryBackoffSeconds = 600;

// Messages retained by a subscription, seconds (api): 10 minutes..31 days, 7 days by default.
inline constexpr int kMinRetentionSeconds = 600;
inline constexpr int kMaxRetentionSeconds = 31 * 24 * 3600;
inline constexpr int kDefaultRetentionSeconds = 7 * 24 * 3600;

// Expiration policy of a subscription, seconds (api): a day at least.
inline constexpr int kMinExpirationSeconds = 24 * 3600;

// Other limits of resources (api, quotas).
inline constexpr std::size_t kMaxLabels = 64;
inline constexpr std::size_t kMaxLabelLength = 63;  // characters of a key or a value
inline constexpr std::size_t kMaxFilterBytes = 256;
inline constexpr std::size_t kMaxSchemaBytes = 300'000;

// gRPC channel arguments (clients). The error trailers of exactly-once acks and the batches that
// are received can be large.
inline constexpr int kMaxMetadataBytes = 4 * 1024 * 1024;
inline constexpr int kMaxReceiveBytes = 20 * 1024 * 1024;

}  // namespace postbox::pubsub

#endif  // POSTBOX_PROTO_RULES_LIMITS_H_

// The limits of the Pub/Sub API, each with where it comes from.
//
// Plain header: standard library only, included by postbox.so (which refuses at emit what Pub/Sub
// would refuse later), by the worker, by the puller and by the embedded emulator (which enforces
// the same numbers).
//
// Sources: "quotas" = cloud.google.com/pubsub/quotas, resource limits; "api" = comments of
// google/pubsub/v1/pubsub.proto; "clients" = what Google's own high-level clients do.

#ifndef POSTBOX_PROTO_RULES_LIMITS_H_
#define POSTBOX_PROTO_RULES_LIMITS_H_

#include <cstddef>

namespace postbox::pubsub {

// Publish (quotas). A request's bytes are those of the encoded PublishRequest: tags, lengths and
// the topic field count.
inline constexpr std::size_t kMaxRequestMessages = 1000;
inline constexpr std::size_t kMaxRequestBytes = 10'000'000;

// One message (quotas).
inline constexpr std::size_t kMaxAttributes = 100;
inline constexpr std::size_t kMaxAttributeKeyBytes = 256;
inline constexpr std::size_t kMaxAttributeValueBytes = 1024;
inline constexpr std::size_t kMaxOrderingKeyBytes = 1024;
// Attribute keys and resource ids that begin with it belong to Google (api).
inline constexpr char kReservedPrefix[] = "goog";

// Resource ids (api, Topic.name and Subscription.name).
inline constexpr std::size_t kMinResourceIdLength = 3;
inline constexpr std::size_t kMaxResourceIdLength = 255;
// "projects/" + project id (30 characters, more with a domain prefix) + "/topics/" + id: no topic
// name is longer than this. A message is checked against it where its topic is not known yet.
inline constexpr std::size_t kMaxTopicNameBytes = 400;

// Acknowledge and ModifyAckDeadline. The service takes 524,288 bytes a request; 3000 ids failed in
// practice, so the clients stay below both.
inline constexpr std::size_t kMaxAckRequestBytes = 524'288;
inline constexpr std::size_t kMaxAckIds = 1000;
inline constexpr std::size_t kMaxAckIdBytes = 510 * 1024;

// Ack deadlines, seconds (api). A subscription has 10..600; ModifyAckDeadline also takes 0 (a
// nack).
inline constexpr int kMinAckDeadlineSeconds = 10;
inline constexpr int kMaxAckDeadlineSeconds = 600;
inline constexpr int kDefaultAckDeadlineSeconds = 10;
// Under exactly-once delivery leases are extended by no less than this (clients).
inline constexpr int kMinExactlyOnceAckDeadlineSeconds = 60;

// Pull.max_messages: the service returns at most this many whatever is asked for (quotas).
inline constexpr int kMaxPullMessages = 1000;

// Dead-letter policy (api).
inline constexpr int kMinDeliveryAttempts = 5;
inline constexpr int kMaxDeliveryAttempts = 100;

// Retry policy, seconds (api).
inline constexpr int kMaxRetryBackoffSeconds = 600;
inline constexpr int kDefaultMinRetryBackoffSeconds = 10;
inline constexpr int kDefaultMaxRetryBackoffSeconds = 600;

// Messages retained by a subscription, seconds (api): 10 minutes..31 days, 7 days by default.
inline constexpr int kMinRetentionSeconds = 600;
inline constexpr int kMaxRetentionSeconds = 31 * 24 * 3600;
inline constexpr int kDefaultRetentionSeconds = 7 * 24 * 3600;

// gRPC channel arguments (clients): error trailers of exactly-once acks and received batches are
// large.
inline constexpr int kMaxMetadataBytes = 4 * 1024 * 1024;
inline constexpr int kMaxReceiveBytes = 20 * 1024 * 1024;

}  // namespace postbox::pubsub

#endif  // POSTBOX_PROTO_RULES_LIMITS_H_

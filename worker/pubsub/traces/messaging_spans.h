// The spans of messages, as the messaging conventions of OpenTelemetry have them for Pub/Sub
// (semantic-conventions v1.36.0; docs/guides/traces.md has the list).
//
//   create T            PRODUCER  of one event; the message names it, so it is what consumers see
//   send T              CLIENT    of a request; linked to the `create` of its messages
//   receive S           CLIENT    of what is handed on together; linked likewise
//   process S           CONSUMER  of one event; a child of its `create`, and linked to it
//   ack, nack, modack S CLIENT    of a request; linked likewise
//
// A span of several messages is a child of the first `create` if all are of one trace. So a trace
// of one event is one tree, also where a tool does not follow links. Otherwise it is a root.
//
// Plain header: standard library only.
#ifndef POSTBOX_WORKER_PUBSUB_TRACES_MESSAGING_SPANS_H_
#define POSTBOX_WORKER_PUBSUB_TRACES_MESSAGING_SPANS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "worker/pubsub/traces/span.h"

namespace postbox::pubsub {

inline constexpr std::string_view kMessageIdAttribute = "messaging.message.id";
inline constexpr std::string_view kOrderingKeyAttribute =
    "messaging.gcp_pubsub.message.ordering_key";
inline constexpr std::string_view kAckDeadlineAttribute =
    "messaging.gcp_pubsub.message.ack_deadline";
inline constexpr std::string_view kEventIdAttribute = "postbox.event_id";
inline constexpr std::string_view kOutcomeAttribute = "postbox.outcome";

// What is done with messages. The texts are literals.
struct MessagingOperation {
  std::string_view name;
  std::string_view type;  // empty: none of those that the conventions have
  SpanKind kind;
};
inline constexpr MessagingOperation kCreate{"create", "create", SpanKind::kProducer};
inline constexpr MessagingOperation kSend{"send", "send", SpanKind::kClient};
inline constexpr MessagingOperation kReceive{"receive", "receive", SpanKind::kClient};
inline constexpr MessagingOperation kProcess{"process", "process", SpanKind::kConsumer};
inline constexpr MessagingOperation kAck{"ack", "settle", SpanKind::kClient};
inline constexpr MessagingOperation kNack{"nack", "settle", SpanKind::kClient};
inline constexpr MessagingOperation kModack{"modack", "", SpanKind::kClient};

// A link has about 100 bytes, and a request may have 1000 messages.
inline constexpr std::size_t kMaxSpanLinks = 128;

// The present, in nanoseconds since 1970; and the time of a clock that is not set.
std::int64_t SpanTime();
std::int64_t SpanTime(std::chrono::steady_clock::time_point time);
// Microseconds since 1970 as nanoseconds. A time that does not fit becomes the nearest one that
// does.
std::int64_t SpanTimeOfMicros(std::int64_t micros);

// A random id; never 0.
std::uint64_t NewSpanId();

// The span of an event that `event` names. `parent`: the span in which it was emitted.
// `occurred_at`: microseconds since 1970.
Span CreateSpan(std::string_view topic, const TraceContext& event, std::uint64_t parent,
                std::string_view event_id, std::string_view ordering_key, std::int64_t occurred_at);

// Of one message, whose `create` is `event`. `subscription`: a full name. It has no times yet.
Span ProcessSpan(std::string_view subscription, const TraceContext& event,
                 std::string_view message_id);

// Of a request or a response with `messages` messages, of which `links` are those with a trace; one
// at least. `resource`: the full name of the topic or the subscription. It ends now.
Span BatchSpan(const MessagingOperation& operation, std::string_view resource,
               std::vector<SpanLink> links, std::size_t messages, std::int64_t start);

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_TRACES_MESSAGING_SPANS_H_

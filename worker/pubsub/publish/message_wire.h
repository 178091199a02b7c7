// Writes PublishRequest and reads PublishResponse in wire format, without the generated classes.
//
// The generated classes make every attribute a heap-allocated map entry, which takes longer than
// all other work of publishing a small message, and every message id a string, which is not used.
// The format cannot change (google.pubsub.v1; PublishRequest: topic = 1, messages = 2;
// PubsubMessage: data = 1, attributes = 2, ordering_key = 5; PublishResponse: message_ids = 1). The
// test compares with the generated classes.
//
// The caller provides the memory. It knows the sizes from wire_size.h, which it needs for batching.

#ifndef POSTBOX_WORKER_PUBSUB_PUBLISH_MESSAGE_WIRE_H_
#define POSTBOX_WORKER_PUBSUB_PUBLISH_MESSAGE_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/rules/attributes.h"
#include "proto/rules/trace_context.h"

namespace postbox::pubsub {

// Writes the topic field: EmptyRequestSize(topic.size()) bytes. Returns the end.
std::uint8_t* WriteTopic(std::string_view topic, std::uint8_t* out);

// Writes one element of `messages`: MessageSizeInRequest(encoded.size()) bytes, where `encoded` is
// a PubsubMessage in wire format. Returns the end.
std::uint8_t* WriteMessage(std::string_view encoded, std::uint8_t* out);

// A whole PubsubMessage, for OutgoingMessage::encoded. The names of the attributes are distinct.
// The memory that `encoded` has is used again.
void EncodeMessage(std::string_view data, std::span<const AttributeView> attributes,
                   std::string_view ordering_key, std::string* encoded);

// The attributes of a message that EncodeMessage() has made; views of `encoded`.
std::vector<AttributeView> MessageAttributes(std::string_view encoded);

// The number of message ids in a PublishResponse in wire format; nothing if it cannot be parsed.
std::optional<std::size_t> CountMessageIds(std::string_view response);

// The message ids, as far as the response can be parsed. The views are of the response.
std::vector<std::string_view> ReadMessageIds(std::string_view response);

// The trace that the attributes of a message name which EncodeMessage() has written.
std::optional<TraceContext> EncodedTraceContext(std::string_view encoded);

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PUBLISH_MESSAGE_WIRE_H_

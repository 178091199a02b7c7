// PublishRequest and PublishResponse straight in wire format, without the generated classes.
//
// Why by hand: the generated class wants every attribute as a heap-allocated map entry, which costs
// more than the rest of publishing a small message, and every message id as a string that nobody
// reads. The format is fixed for ever by google.pubsub.v1 (PublishRequest: topic = 1, messages = 2;
// PubsubMessage: data = 1, attributes = 2, ordering_key = 5; PublishResponse: message_ids = 1); the
// test compares with the generated classes.
//
// The caller knows the sizes from wire_size.h (it has them for batching anyway) and provides the
// room.

#ifndef POSTBOX_WORKER_PUBSUB_MESSAGE_WIRE_H_
#define POSTBOX_WORKER_PUBSUB_MESSAGE_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "proto/rules/attributes.h"

namespace postbox::pubsub {

// Writes the topic field: EmptyRequestSize(topic.size()) bytes. Returns the end.
std::uint8_t* WriteTopic(std::string_view topic, std::uint8_t* out);

// Writes one element of `messages`: MessageSizeInRequest(encoded.size()) bytes, where `encoded` is
// a PubsubMessage in wire format. Returns the end.
std::uint8_t* WriteMessage(std::string_view encoded, std::uint8_t* out);

// A whole PubsubMessage, for OutgoingMessage::encoded. Names of attributes are distinct. What `encoded` has
// room for already is used again.
void EncodeMessage(std::string_view data, std::span<const AttributeView> attributes,
                   std::string_view ordering_key, std::string* encoded);

// The number of message ids in a PublishResponse in wire format; nothing if it cannot be read.
std::optional<std::size_t> CountMessageIds(std::string_view response);

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_MESSAGE_WIRE_H_

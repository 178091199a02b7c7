// Encodes a PublishRequest straight into wire format, without the generated classes.
//
// Why by hand: the generated class wants every attribute as a heap-allocated map entry, which costs more than the rest of
// publishing a small message. The format is fixed for ever by google.pubsub.v1 (PublishRequest: topic = 1, messages = 2;
// PubsubMessage: data = 1, attributes = 2, ordering_key = 5); the test compares with the generated class.
//
// The caller knows the sizes from wire_size.h (it has them for batching anyway) and provides the room.

#ifndef POSTBOX_WORKER_PUBSUB_MESSAGE_WIRE_H_
#define POSTBOX_WORKER_PUBSUB_MESSAGE_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "worker/pubsub/attributes.h"
#include "worker/pubsub/publisher.h"

namespace postbox::pubsub {

// Writes the topic field: EmptyRequestSize(topic.size()) bytes. Returns the end.
std::uint8_t* WriteTopic(std::string_view topic, std::uint8_t* out);

// Writes one element of `messages`: MessageSizeInRequest(message_size) bytes, where message_size is the MessageSize() of
// this message. Returns the end.
std::uint8_t* WriteMessage(const Message& message, std::size_t message_size, std::uint8_t* out);

// A whole PubsubMessage, for Message::encoded. Names of attributes are distinct.
std::string EncodeMessage(std::string_view data, std::span<const AttributeView> attributes,
                          std::string_view ordering_key);

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_MESSAGE_WIRE_H_

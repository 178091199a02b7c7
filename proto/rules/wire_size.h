// The exact size of a PubsubMessage and of a PublishRequest in protobuf wire format, computed from
// their parts.
//
// Plain header: standard library only. The check at emit, the batching of the publisher and the
// encoder (worker/pubsub/publish/message_wire.h) must agree on sizes and use it. The test of the
// encoder compares it with the generated class.
//
// The format of a field is its tag, its length as a varint, and its bytes. All fields used here
// have a number below 16, so their tags are one byte. Empty strings are left out, except in a map
// entry, where key and value are always written.

#ifndef POSTBOX_PROTO_RULES_WIRE_SIZE_H_
#define POSTBOX_PROTO_RULES_WIRE_SIZE_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace postbox::pubsub {

constexpr std::size_t VarintSize(std::uint64_t value) {
  std::size_t size = 1;
  while (value >= 0x80) {
    value >>= 7;
    ++size;
  }
  return size;
}

// A length-delimited field (string, bytes, message) of `length` bytes, with its tag and length.
constexpr std::size_t FieldSize(std::size_t length) { return 1 + VarintSize(length) + length; }

// The same for a proto3 string or bytes field, which is not written when it is empty.
constexpr std::size_t OptionalFieldSize(std::size_t length) {
  return length == 0 ? 0 : FieldSize(length);
}

// The body of one entry of map<string, string>.
constexpr std::size_t MapEntrySize(std::size_t key_length, std::size_t value_length) {
  return FieldSize(key_length) + FieldSize(value_length);
}

// One attribute inside a PubsubMessage.
constexpr std::size_t AttributeSize(std::size_t key_length, std::size_t value_length) {
  return FieldSize(MapEntrySize(key_length, value_length));
}

// A PubsubMessage (data, attributes, ordering_key). `attributes` is a range of pairs of strings
// with distinct keys.
template <class AttributeRange>
constexpr std::size_t MessageSize(std::string_view data, const AttributeRange& attributes,
                                  std::string_view ordering_key) {
  std::size_t size = OptionalFieldSize(data.size()) + OptionalFieldSize(ordering_key.size());
  for (const auto& [key, value] : attributes) {
    size += AttributeSize(std::string_view(key).size(), std::string_view(value).size());
  }
  return size;
}

// The bytes that a message of `message_size` bytes adds to a PublishRequest, and the size of a
// request without messages.
constexpr std::size_t MessageSizeInRequest(std::size_t message_size) {
  return FieldSize(message_size);
}
constexpr std::size_t EmptyRequestSize(std::size_t topic_length) {
  return OptionalFieldSize(topic_length);
}

}  // namespace postbox::pubsub

#endif  // POSTBOX_PROTO_RULES_WIRE_SIZE_H_

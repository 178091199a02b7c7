#include "worker/pubsub/message_wire.h"

#include <cstring>

#include "worker/pubsub/wire_size.h"

namespace postbox::pubsub {

namespace {

constexpr std::uint8_t LengthDelimited(int field) {
  return static_cast<std::uint8_t>(field << 3 | 2);
}

std::uint8_t* WriteVarint(std::uint64_t value, std::uint8_t* out) {
  while (value >= 0x80) {
    *out++ = static_cast<std::uint8_t>(value | 0x80);
    value >>= 7;
  }
  *out++ = static_cast<std::uint8_t>(value);
  return out;
}

std::uint8_t* WriteField(int field, std::string_view bytes, std::uint8_t* out) {
  *out++ = LengthDelimited(field);
  out = WriteVarint(bytes.size(), out);
  if (!bytes.empty()) std::memcpy(out, bytes.data(), bytes.size());
  return out + bytes.size();
}

// The fields of a PubsubMessage.
template <class AttributeRange>
std::uint8_t* WriteParts(std::string_view data, const AttributeRange& attributes,
                         std::string_view ordering_key, std::uint8_t* out) {
  if (!data.empty()) out = WriteField(1, data, out);
  for (const auto& [key, value] : attributes) {
    *out++ = LengthDelimited(2);
    out = WriteVarint(MapEntrySize(key.size(), value.size()), out);
    out = WriteField(1, key, out);
    out = WriteField(2, value, out);
  }
  if (!ordering_key.empty()) out = WriteField(5, ordering_key, out);
  return out;
}

}  // namespace

std::uint8_t* WriteTopic(std::string_view topic, std::uint8_t* out) {
  return topic.empty() ? out : WriteField(1, topic, out);
}

std::uint8_t* WriteMessage(const Message& message, std::size_t message_size, std::uint8_t* out) {
  *out++ = LengthDelimited(2);
  out = WriteVarint(message_size, out);
  if (message.encoded.empty()) {
    return WriteParts(message.data, message.attributes, message.ordering_key, out);
  }
  std::memcpy(out, message.encoded.data(), message.encoded.size());
  return out + message.encoded.size();
}

std::string EncodeMessage(std::string_view data, std::span<const AttributeView> attributes,
                          std::string_view ordering_key) {
  std::string encoded(MessageSize(data, attributes, ordering_key), '\0');
  WriteParts(data, attributes, ordering_key, reinterpret_cast<std::uint8_t*>(encoded.data()));
  return encoded;
}

}  // namespace postbox::pubsub

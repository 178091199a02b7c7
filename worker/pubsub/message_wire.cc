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

}  // namespace

std::uint8_t* WriteTopic(std::string_view topic, std::uint8_t* out) {
  return topic.empty() ? out : WriteField(1, topic, out);
}

std::uint8_t* WriteMessage(const Message& message, std::size_t message_size, std::uint8_t* out) {
  *out++ = LengthDelimited(2);
  out = WriteVarint(message_size, out);
  if (!message.data.empty()) out = WriteField(1, message.data, out);
  for (const auto& [key, value] : message.attributes) {
    *out++ = LengthDelimited(2);
    out = WriteVarint(MapEntrySize(key.size(), value.size()), out);
    out = WriteField(1, key, out);
    out = WriteField(2, value, out);
  }
  if (!message.ordering_key.empty()) out = WriteField(5, message.ordering_key, out);
  return out;
}

}  // namespace postbox::pubsub

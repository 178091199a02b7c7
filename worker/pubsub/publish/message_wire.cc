#include "worker/pubsub/publish/message_wire.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <cstring>

#include "proto/rules/wire_size.h"

namespace postbox::pubsub {

namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

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

struct WireField {
  int number;
  std::string_view bytes;
};

// The next field, which has a length, as all of a message do; nothing at the end.
std::optional<WireField> TakeField(std::string_view* rest) {
  if (rest->empty()) return std::nullopt;
  CodedInputStream input(reinterpret_cast<const std::uint8_t*>(rest->data()),
                         static_cast<int>(rest->size()));
  const std::uint32_t tag = input.ReadTag();
  std::uint32_t length = 0;
  if ((tag & 7) != 2 || !input.ReadVarint32(&length)) return std::nullopt;
  const auto begin = static_cast<std::size_t>(input.CurrentPosition());
  if (length > rest->size() - begin) return std::nullopt;
  const WireField field{static_cast<int>(tag >> 3), rest->substr(begin, length)};
  rest->remove_prefix(begin + length);
  return field;
}

// So that a text of which the next use is a few bytes longer has the room for it.
constexpr std::size_t kRoomStep = 64;

// A string that grows by a byte doubles its room, and copies what it had. Messages that are used
// again are of about one length, so they would all have twice the room that they need.
void SetSize(std::size_t size, std::string* text) {
  if (size > text->capacity()) {
    std::string().swap(*text);
    text->reserve((size / kRoomStep + 1) * kRoomStep);
  }
  text->resize(size);
}

}  // namespace

std::uint8_t* WriteTopic(std::string_view topic, std::uint8_t* out) {
  return topic.empty() ? out : WriteField(1, topic, out);
}

std::uint8_t* WriteMessage(std::string_view encoded, std::uint8_t* out) {
  return WriteField(2, encoded, out);
}

void EncodeMessage(std::string_view data, std::span<const AttributeView> attributes,
                   std::string_view ordering_key, std::string* encoded) {
  SetSize(MessageSize(data, attributes, ordering_key), encoded);
  auto* out = reinterpret_cast<std::uint8_t*>(encoded->data());
  if (!data.empty()) out = WriteField(1, data, out);
  for (const auto& [key, value] : attributes) {
    *out++ = LengthDelimited(2);
    out = WriteVarint(MapEntrySize(key.size(), value.size()), out);
    out = WriteField(1, key, out);
    out = WriteField(2, value, out);
  }
  if (!ordering_key.empty()) WriteField(5, ordering_key, out);
}

std::vector<AttributeView> MessageAttributes(std::string_view encoded) {
  std::vector<AttributeView> attributes;
  std::string_view rest = encoded;
  while (const auto field = TakeField(&rest)) {
    if (field->number != 2) continue;
    std::string_view entry = field->bytes;
    AttributeView attribute;
    while (const auto part = TakeField(&entry)) {
      (part->number == 1 ? attribute.first : attribute.second) = part->bytes;
    }
    attributes.push_back(attribute);
  }
  return attributes;
}

std::optional<std::size_t> CountMessageIds(std::string_view response) {
  CodedInputStream input(reinterpret_cast<const std::uint8_t*>(response.data()),
                         static_cast<int>(response.size()));
  std::size_t count = 0;
  while (const std::uint32_t tag = input.ReadTag()) {
    if (tag == LengthDelimited(1)) ++count;
    if (!WireFormatLite::SkipField(&input, tag)) return std::nullopt;
  }
  if (!input.ConsumedEntireMessage()) return std::nullopt;
  return count;
}

std::vector<std::string_view> ReadMessageIds(std::string_view response) {
  std::vector<std::string_view> ids;
  while (const auto field = TakeField(&response)) {
    if (field->number == 1) ids.push_back(field->bytes);
  }
  return ids;
}

std::optional<TraceContext> EncodedTraceContext(std::string_view encoded) {
  return FindTraceContext(MessageAttributes(encoded));
}

}  // namespace postbox::pubsub

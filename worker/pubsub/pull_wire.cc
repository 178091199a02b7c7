#include "worker/pubsub/pull_wire.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace postbox::pubsub {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr std::uint32_t BytesField(int field) { return static_cast<std::uint32_t>(field << 3 | 2); }
constexpr std::uint32_t NumberField(int field) { return static_cast<std::uint32_t>(field << 3); }

// The fields of one message, one after the other. `on_field` reads a field that it knows, or calls
// Skip.
class FieldReader {
 public:
  explicit FieldReader(std::string_view wire)
      : input_(reinterpret_cast<const std::uint8_t*>(wire.data()), static_cast<int>(wire.size())) {}

  template <class OnField>
  bool ForEach(OnField on_field) {
    while ((tag_ = input_.ReadTag()) != 0) {
      if (!on_field(tag_)) return false;
    }
    return input_.ConsumedEntireMessage();
  }
  bool Skip() { return WireFormatLite::SkipField(&input_, tag_); }
  bool Read(std::string_view* bytes) {
    std::uint32_t length = 0;
    if (!input_.ReadVarint32(&length)) return false;
    *bytes = {};
    if (length == 0) return true;
    const void* data = nullptr;
    int left = 0;
    if (!input_.GetDirectBufferPointer(&data, &left)) return false;
    if (static_cast<std::uint32_t>(left) < length) return false;
    *bytes = std::string_view(static_cast<const char*>(data), length);
    return input_.Skip(static_cast<int>(length));
  }
  bool Read(std::string* text) {
    std::string_view bytes;
    if (!Read(&bytes)) return false;
    text->assign(bytes);
    return true;
  }
  template <class Number>
  bool ReadNumber(Number* number) {
    std::uint64_t value = 0;
    if (!input_.ReadVarint64(&value)) return false;
    *number = static_cast<Number>(value);
    return true;
  }

 private:
  CodedInputStream input_;
  std::uint32_t tag_ = 0;
};

using AttributeViews = std::vector<std::pair<std::string_view, std::string_view>>;

bool ReadAttribute(std::string_view wire, AttributeViews* attributes) {
  auto& [name, value] = attributes->emplace_back();
  FieldReader fields(wire);
  return fields.ForEach([&, &name = name, &value = value](std::uint32_t tag) {
    if (tag == BytesField(1)) return fields.Read(&name);
    if (tag == BytesField(2)) return fields.Read(&value);
    return fields.Skip();
  });
}

bool ReadTime(std::string_view wire, std::chrono::system_clock::time_point* time) {
  std::int64_t seconds = 0;
  std::int32_t nanos = 0;
  FieldReader fields(wire);
  const bool read = fields.ForEach([&](std::uint32_t tag) {
    if (tag == NumberField(1)) return fields.ReadNumber(&seconds);
    if (tag == NumberField(2)) return fields.ReadNumber(&nanos);
    return fields.Skip();
  });
  // A time that the clock cannot hold is not one of a message.
  constexpr std::int64_t kMostSeconds = 9'000'000'000;
  seconds = std::clamp(seconds, -kMostSeconds, kMostSeconds);
  *time = std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(
          std::chrono::seconds(seconds) + std::chrono::nanoseconds(nanos)));
  return read;
}

// Sorted by name. Of several with one name the last one counts.
void SortByName(AttributeViews* attributes) {
  std::stable_sort(attributes->begin(), attributes->end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
  const auto end = std::unique(attributes->rbegin(), attributes->rend(), same);
  attributes->erase(attributes->begin(), end.base());
}

bool ReadMessage(std::string_view wire, AttributeViews* attributes, ReceivedMessage* message) {
  FieldReader fields(wire);
  return fields.ForEach([&](std::uint32_t tag) {
    std::string_view bytes;
    switch (tag) {
      case BytesField(1):
        return fields.Read(&message->data);
      case BytesField(2):
        return fields.Read(&bytes) && ReadAttribute(bytes, attributes);
      case BytesField(3):
        return fields.Read(&message->message_id);
      case BytesField(4):
        return fields.Read(&bytes) && ReadTime(bytes, &message->publish_time);
      case BytesField(5):
        return fields.Read(&message->ordering_key);
      default:
        return fields.Skip();
    }
  });
}

// `attributes`: memory that is used for one message after the other.
bool ReadReceived(std::string_view wire, AttributeViews* attributes, PulledMessage* pulled) {
  attributes->clear();
  FieldReader fields(wire);
  const bool read = fields.ForEach([&](std::uint32_t tag) {
    std::string_view bytes;
    switch (tag) {
      case BytesField(1):
        return fields.Read(&pulled->ack_id);
      case BytesField(2):
        if (!fields.Read(&bytes)) return false;
        pulled->bytes += static_cast<std::int64_t>(bytes.size());
        return ReadMessage(bytes, attributes, &pulled->message);
      case NumberField(3):
        return fields.ReadNumber(&pulled->message.delivery_attempt);
      default:
        return fields.Skip();
    }
  });
  if (!read) return false;
  SortByName(attributes);
  pulled->message.attributes.assign(attributes->begin(), attributes->end());
  return true;
}

bool ReadProperties(std::string_view wire, SubscriptionProperties* properties) {
  FieldReader fields(wire);
  return fields.ForEach([&](std::uint32_t tag) {
    if (tag == NumberField(1)) return fields.ReadNumber(&properties->exactly_once);
    if (tag == NumberField(2)) return fields.ReadNumber(&properties->ordered);
    return fields.Skip();
  });
}

std::optional<std::size_t> CountMessages(std::string_view wire) {
  std::size_t count = 0;
  FieldReader fields(wire);
  const bool read = fields.ForEach([&](std::uint32_t tag) {
    if (tag == BytesField(1)) ++count;
    return fields.Skip();
  });
  if (!read) return std::nullopt;
  return count;
}

}  // namespace

std::optional<PullResponse> ReadPullResponse(std::string_view wire) {
  PullResponse response;
  // They are counted first, which reads their lengths only: to grow the vector moves each of them.
  const std::optional<std::size_t> count = CountMessages(wire);
  if (!count) return std::nullopt;
  response.messages.reserve(*count);
  AttributeViews attributes;
  FieldReader fields(wire);
  const bool read = fields.ForEach([&](std::uint32_t tag) {
    std::string_view bytes;
    if (tag == BytesField(1)) {
      return fields.Read(&bytes) &&
             ReadReceived(bytes, &attributes, &response.messages.emplace_back());
    }
    if (tag == BytesField(4)) {
      if (!response.properties) response.properties.emplace();
      return fields.Read(&bytes) && ReadProperties(bytes, &*response.properties);
    }
    return fields.Skip();
  });
  if (!read) return std::nullopt;
  return response;
}

}  // namespace postbox::pubsub

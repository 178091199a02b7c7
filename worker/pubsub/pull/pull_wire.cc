#include "worker/pubsub/pull/pull_wire.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <limits>
#include <memory>
#include <utility>

namespace postbox::pubsub {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// The standard ones, with room for one of the caller's.
constexpr std::size_t kUsualAttributes = kStandardAttributes.size() + 1;

constexpr std::uint32_t BytesField(int field) { return static_cast<std::uint32_t>(field << 3 | 2); }
constexpr std::uint32_t NumberField(int field) { return static_cast<std::uint32_t>(field << 3); }

// The fields of one message, one after the other. `on_field` reads a field that it knows, or calls
// Skip.
class FieldReader {
 public:
  explicit FieldReader(std::string_view wire) : at_(wire.data()), end_(at_ + wire.size()) {}

  template <class OnField>
  bool ForEach(OnField on_field) {
    while (at_ != end_) {
      // What is above 32 bits is no tag, and must not be read as the one that its low bits are. No
      // field has the number 0.
      std::uint64_t tag = 0;
      if (!ReadNumber(&tag) || tag > std::numeric_limits<std::uint32_t>::max()) return false;
      tag_ = static_cast<std::uint32_t>(tag);
      if (tag_ >> 3 == 0 || !on_field(tag_)) return false;
    }
    return true;
  }
  bool Skip() {
    std::uint64_t number = 0;
    std::string_view bytes;
    switch (tag_ & 7) {
      case WireFormatLite::WIRETYPE_VARINT:
        return ReadNumber(&number);
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED:
        return Read(&bytes);
      default:
        return SkipRare();
    }
  }
  bool Read(std::string_view* bytes) {
    std::uint64_t length = 0;
    if (!ReadNumber(&length) || length > static_cast<std::uint64_t>(end_ - at_)) return false;
    *bytes = {at_, static_cast<std::size_t>(length)};
    at_ += length;
    return true;
  }
  template <class Number>
  bool ReadNumber(Number* number) {
    if (at_ != end_ && static_cast<signed char>(*at_) >= 0) {
      *number = static_cast<Number>(*at_++);
      return true;
    }
    std::uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (at_ == end_) return false;
      const auto byte = static_cast<unsigned char>(*at_++);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) {
        *number = static_cast<Number>(value);
        return true;
      }
    }
    return false;
  }

 private:
  bool SkipRare() {
    CodedInputStream input(reinterpret_cast<const std::uint8_t*>(at_),
                           static_cast<int>(end_ - at_));
    if (!WireFormatLite::SkipField(&input, tag_)) return false;
    at_ += input.CurrentPosition();
    return true;
  }

  const char* at_;
  const char* const end_;
  std::uint32_t tag_ = 0;
};

using AttributeViews = std::vector<AttributeView>;

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
  const auto before = [](const auto& a, const auto& b) { return a.first < b.first; };
  const auto not_before = [](const auto& a, const auto& b) { return a.first >= b.first; };
  if (std::adjacent_find(attributes->begin(), attributes->end(), not_before) == attributes->end()) {
    return;
  }
  // There are few, and std::stable_sort would allocate.
  if (attributes->size() <= 2 * kUsualAttributes) {
    for (auto next = attributes->begin(); next != attributes->end(); ++next) {
      std::rotate(std::upper_bound(attributes->begin(), next, *next, before), next,
                  std::next(next));
    }
  } else {
    std::stable_sort(attributes->begin(), attributes->end(), before);
  }
  const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
  const auto end = std::unique(attributes->rbegin(), attributes->rend(), same);
  attributes->erase(attributes->begin(), end.base());
}

bool ReadMessage(std::string_view wire, ReceivedMessage* message) {
  FieldReader fields(wire);
  return fields.ForEach([&](std::uint32_t tag) {
    std::string_view bytes;
    switch (tag) {
      case BytesField(1):
        return fields.Read(&message->data);
      case BytesField(2):
        return fields.Read(&bytes) && ReadAttribute(bytes, &message->attributes);
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

MessageIdentity MakeIdentity(std::string_view ack_id, const ReceivedMessage& message) {
  const std::array texts{ack_id, message.ordering_key, message.message_id};
  auto block =
      std::make_shared_for_overwrite<char[]>(texts[0].size() + texts[1].size() + texts[2].size());
  std::array<std::string_view, 3> copies;
  char* at = block.get();
  for (std::size_t i = 0; i < texts.size(); ++i) {
    copies[i] = {at, texts[i].size()};
    at = std::copy(texts[i].begin(), texts[i].end(), at);
  }
  return {copies[0], copies[1], copies[2], std::move(block)};
}

bool ReadReceived(std::string_view response, PulledMessage* pulled) {
  auto block = std::make_shared_for_overwrite<char[]>(response.size());
  std::copy(response.begin(), response.end(), block.get());
  const std::string_view wire(block.get(), response.size());
  ReceivedMessage& message = pulled->message;
  message.block = std::move(block);
  message.attributes.reserve(kUsualAttributes);
  std::string_view ack_id;
  FieldReader fields(wire);
  const bool read = fields.ForEach([&](std::uint32_t tag) {
    std::string_view bytes;
    switch (tag) {
      case BytesField(1):
        return fields.Read(&ack_id);
      case BytesField(2):
        if (!fields.Read(&bytes)) return false;
        pulled->bytes += static_cast<std::int64_t>(bytes.size());
        return ReadMessage(bytes, &message);
      case NumberField(3):
        return fields.ReadNumber(&message.delivery_attempt);
      default:
        return fields.Skip();
    }
  });
  if (!read) return false;
  SortByName(&message.attributes);
  pulled->identity = MakeIdentity(ack_id, message);
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
  FieldReader fields(wire);
  const bool read = fields.ForEach([&](std::uint32_t tag) {
    std::string_view bytes;
    if (tag == BytesField(1)) {
      return fields.Read(&bytes) && ReadReceived(bytes, &response.messages.emplace_back());
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

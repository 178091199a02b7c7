// Messages in wire format: what the publisher writes is what protobuf's own parser reads, of the
// size that was reckoned; what passes the check passes the emulator's; and the ids of a response
// are counted as protobuf counts them; and what a stream brings is read as protobuf reads it.
#include "worker/pubsub/publish/message_wire.h"

#include <algorithm>
#include <vector>

#include "google/pubsub/v1/pubsub.pb.h"
#include "proto/rules/message_check.h"
#include "proto/rules/wire_size.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/quiet_protobuf.h"
#include "worker/emulator/rules/validation.h"
#include "worker/pubsub/publish/outgoing_message.h"
#include "worker/pubsub/pull/pull_wire.h"

using postbox::fuzz::Input;
namespace rules = postbox::pubsub;
namespace pb = google::pubsub::v1;

namespace {

constexpr char kTopic[] = "projects/p/topics/catalog.video.events";

// A response of any bytes. The parser of strings also refuses those that are not UTF-8, which
// nobody reads here.
void CheckResponse(std::string_view bytes) {
  const auto count = rules::CountMessageIds(bytes);
  pb::PublishResponse response;
  const bool parsed = response.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  if (parsed) {
    FUZZ_CHECK(count && *count == static_cast<std::size_t>(response.message_ids_size()), bytes);
  }
  pb::PublishResponse made;
  for (std::size_t i = 0; i < bytes.size() % 50; ++i) made.add_message_ids(std::to_string(i));
  FUZZ_CHECK(rules::CountMessageIds(made.SerializeAsString()) == bytes.size() % 50, bytes);
}

// Whether there may be a tag of five bytes with more than 32 bits. Protobuf's parser drops the bits
// above 32, and takes it for another field.
bool MayHaveLongTag(std::string_view bytes) {
  const auto goes_on = [](char byte) { return static_cast<signed char>(byte) < 0; };
  for (std::size_t at = 4; at < bytes.size(); ++at) {
    const bool fifth = std::all_of(bytes.begin() + at - 4, bytes.begin() + at, goes_on);
    if (fifth && !goes_on(bytes[at]) && bytes[at] > 0x0F) return true;
  }
  return false;
}

// What protobuf's parser reads of a stream's response, pull_wire reads.
void CheckPulled(std::string_view bytes) {
  const auto read = rules::ReadPullResponse(bytes);
  pb::StreamingPullResponse parsed;
  if (!parsed.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  if (!read && MayHaveLongTag(bytes)) return;
  const auto& messages = parsed.received_messages();
  FUZZ_CHECK(read && read->messages.size() == static_cast<std::size_t>(messages.size()), bytes);
  for (int i = 0; i < messages.size(); ++i) {
    const rules::PulledMessage& pulled = read->messages[static_cast<std::size_t>(i)];
    const pb::PubsubMessage& message = messages[i].message();
    FUZZ_CHECK(pulled.identity.ack_id == messages[i].ack_id(), bytes);
    FUZZ_CHECK(pulled.message.data == message.data(), bytes);
    FUZZ_CHECK(pulled.message.message_id == message.message_id(), bytes);
    FUZZ_CHECK(pulled.message.ordering_key == message.ordering_key(), bytes);
    FUZZ_CHECK(pulled.message.attributes.size() == message.attributes().size(), bytes);
    for (const auto& [name, value] : pulled.message.attributes) {
      const auto found = message.attributes().find(name);
      FUZZ_CHECK(found != message.attributes().end() && found->second == value, bytes);
    }
  }
}

// The request with this message as it goes out.
std::string Request(std::string_view topic, std::string_view message) {
  std::string request(
      rules::EmptyRequestSize(topic.size()) + rules::MessageSizeInRequest(message.size()), '\xAA');
  auto* const begin = reinterpret_cast<std::uint8_t*>(request.data());
  const std::uint8_t* end = rules::WriteMessage(message, rules::WriteTopic(topic, begin));
  FUZZ_CHECK(end == begin + request.size(), request);
  return request;
}

void CheckMessage(std::string_view data, const rules::Attributes& attributes,
                  std::string_view key) {
  const rules::OutgoingMessage message =
      rules::MakeOutgoingMessage(kTopic, std::string(key), data, attributes);
  const bool good = message.status != rules::PublishStatus::kRejected;
  const std::vector<rules::AttributeView> views(attributes.begin(), attributes.end());
  std::string encoded = "used before";
  rules::EncodeMessage(data, views, key, &encoded);
  FUZZ_CHECK(encoded.size() == rules::MessageSize(data, views, key), data);

  pb::PublishRequest request;
  const bool parsed = request.ParseFromString(Request(kTopic, encoded));
  bool utf8 = rules::IsValidUtf8(key);
  for (const auto& [name, value] : attributes) {
    utf8 = utf8 && rules::IsValidUtf8(name) && rules::IsValidUtf8(value);
  }
  FUZZ_CHECK(parsed == utf8, encoded);
  if (!parsed) {
    FUZZ_CHECK(!good, encoded);
    return;
  }
  const pb::PubsubMessage& read = request.messages(0);
  FUZZ_CHECK(request.topic() == kTopic && request.messages_size() == 1, encoded);
  FUZZ_CHECK(read.data() == data && read.ordering_key() == key, encoded);
  FUZZ_CHECK(static_cast<std::size_t>(read.attributes_size()) == attributes.size(), encoded);
  for (const auto& [name, value] : attributes) {
    const auto found = read.attributes().find(name);
    FUZZ_CHECK(found != read.attributes().end() && found->second == value, encoded);
  }
  FUZZ_CHECK(request.ByteSizeLong() == rules::EmptyRequestSize(sizeof kTopic - 1) +
                                           rules::MessageSizeInRequest(encoded.size()),
             encoded);
  const absl::Status status = postbox::emulator::CheckPublish(request);
  FUZZ_CHECK(!good || status.ok(), status.ToString());
  // The service takes attributes of Google's own clients.
  FUZZ_CHECK(good || !status.ok() || encoded.find("googclient_") != std::string::npos,
             message.error);
}

}  // namespace

// The ordering key, how often each value is repeated, names and values up to an empty line, the
// data.
FUZZ(Input* input) {
  postbox::fuzz::QuietProtobuf();
  Input whole = *input;
  const std::string_view bytes = whole.Rest();
  CheckResponse(bytes);
  CheckPulled(bytes);
  const std::string_view key = input->Line();
  const int times = input->Byte() % 16 == 0 ? 300 : 1;
  rules::Attributes attributes;
  while (!input->empty()) {
    const std::string name(input->Line());
    if (name.empty()) break;
    std::string value;
    const std::string_view part = input->Line();
    for (int i = 0; i < times; ++i) value += part;
    if (rules::FindAttribute(attributes, name) == nullptr) attributes.emplace_back(name, value);
  }
  CheckMessage(input->Rest(), attributes, key);
}

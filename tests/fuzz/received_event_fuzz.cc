// What the puller reads of a message.
#include "worker/puller/received_event.h"

#include <nlohmann/json.hpp>

#include "google/pubsub/v1/pubsub.pb.h"
#include "proto/rules/attributes.h"
#include "proto/rules/utf8.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/quiet_protobuf.h"

using nlohmann::json;
using postbox::fuzz::Input;
using postbox::puller::ReceivedEvent;
namespace rules = postbox::pubsub;

namespace {

bool IsStorable(std::string_view text) {
  return rules::IsValidUtf8(text) && text.find('\0') == std::string_view::npos;
}

// Whatever the message is, the server can store the event, if only as a dead letter.
ReceivedEvent Read(const std::string& data, const rules::Attributes& attributes) {
  rules::ReceivedMessage message;
  message.data = data;
  message.attributes.assign(attributes.begin(), attributes.end());
  ReceivedEvent event = postbox::puller::ParseEvent(message);
  FUZZ_CHECK(event.payload == data, data);
  for (const auto* field :
       {&event.event_id, &event.event_type, &event.aggregate_type, &event.aggregate_id}) {
    FUZZ_CHECK(!*field || (!(*field)->empty() && IsStorable(**field)), **field);
  }
  FUZZ_CHECK(event.event_id || !event.poison.empty(), data);
  FUZZ_CHECK(IsStorable(event.poison) && event.poison.size() < 1000, event.poison);
  const json object = json::parse(event.attributes, nullptr, false);
  FUZZ_CHECK(object.is_object(), event.attributes);
  for (const auto& [name, value] : object.items()) {
    FUZZ_CHECK(IsStorable(name) && IsStorable(value.get<std::string>()), event.attributes);
  }
  if (event.occurred_at) {
    std::int64_t micros = 0;
    const std::string text = rules::FormatRfc3339(*event.occurred_at);
    FUZZ_CHECK(rules::ParseRfc3339(text, &micros) && micros == *event.occurred_at, text);
  }
  static_cast<void>(rules::TraceIdAmong(message.attributes));
  return event;
}

// A message that Postbox sends is read as the event that was emitted.
void CheckRoundTrip(const std::string& text, std::int64_t number, const std::string& data,
                    const rules::Attributes& attributes) {
  const rules::StandardAttributes standard({text, text, text, text, number, number, text});
  rules::Attributes sent;
  for (const auto& [name, value] : standard.With(attributes)) sent.emplace_back(name, value);
  std::sort(sent.begin(), sent.end());
  const ReceivedEvent event = Read(data, sent);
  FUZZ_CHECK(event.poison.empty(), event.poison);
  FUZZ_CHECK(event.event_id == text && event.event_type == text, text);
  FUZZ_CHECK(event.aggregate_type == text && event.aggregate_id == text, text);
  FUZZ_CHECK(event.version == number, text);
  FUZZ_CHECK(
      event.occurred_at && rules::FormatRfc3339(*event.occurred_at) == rules::FormatRfc3339(number),
      std::to_string(number));
  json expected = json::object();
  expected["schema_version"] = text;
  for (const auto& [name, value] : attributes) {
    if (!rules::IsStandardAttribute(name)) expected[name] = value;
  }
  // The context of a trace comes under both names, where the message had room for both.
  for (const rules::TraceName& name : rules::kTraceNames) {
    const std::string* standard = rules::FindAttribute(attributes, name.standard);
    const std::string* of_clients = rules::FindAttribute(attributes, name.of_clients);
    if (standard == nullptr && of_clients == nullptr) continue;
    expected[name.standard] = *(standard != nullptr ? standard : of_clients);
    if (rules::FindAttribute(sent, name.of_clients) != nullptr) {
      expected[name.of_clients] = *(of_clients != nullptr ? of_clients : standard);
    }
  }
  FUZZ_CHECK(json::parse(event.attributes) == expected, event.attributes);
}

// A message as it comes over the wire, and one that is sure to be well-formed.
void CheckWire(std::string_view bytes) {
  google::pubsub::v1::PubsubMessage message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  rules::Attributes attributes(message.attributes().begin(), message.attributes().end());
  std::sort(attributes.begin(), attributes.end());
  Read(message.data(), attributes);
}

}  // namespace

// Names and values of attributes to an empty line, the data. All bytes are also taken for a message
// in wire format.
FUZZ(Input* input) {
  postbox::fuzz::QuietProtobuf();
  Input whole = *input;
  CheckWire(whole.Rest());
  rules::Attributes attributes;
  bool utf8 = true, nul = false;
  std::string text = "x";
  while (!input->empty()) {
    const std::string name(input->Line());
    if (name.empty()) break;
    const std::string value(input->Line());
    // protobuf refuses a message with others before it gets here.
    if (!rules::IsValidUtf8(name) || !rules::IsValidUtf8(value)) utf8 = false;
    nul |= (name + value).find('\0') != std::string::npos;
    if (rules::FindAttribute(attributes, name) != nullptr) continue;
    attributes.emplace_back(name, value);
    if (!value.empty()) text = value;
  }
  const std::string data(input->Rest());
  if (!utf8) return;
  std::sort(attributes.begin(), attributes.end());
  Read(data, attributes);
  std::int64_t number = 0;
  for (const char c : data.substr(0, 8))
    number = static_cast<std::int64_t>(static_cast<std::uint64_t>(number) << 8 |
                                       static_cast<unsigned char>(c));
  if (!nul) CheckRoundTrip(text, number, data, attributes);
}

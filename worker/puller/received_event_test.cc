#include "worker/puller/received_event.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "proto/rules/attributes.h"
#include "worker/puller/kept_text.h"

namespace postbox::puller {
namespace {

using nlohmann::json;

pubsub::ReceivedMessage Message(std::string data,
                                std::vector<std::pair<std::string, std::string>> attributes = {}) {
  pubsub::ReceivedMessage message;
  message.data = Kept(std::move(data));
  for (auto& [name, value] : attributes) {
    message.attributes.emplace_back(Kept(std::move(name)), Kept(std::move(value)));
  }
  return message;
}

ReceivedEvent Parse(const pubsub::ReceivedMessage& message) { return ParseEvent(message); }

TEST(EventTest, TheStandardAttributesBecomeTheFieldsAndTheOthersStay) {
  ReceivedEvent event =
      Parse(Message("\x08\x01 not json", {{"event_id", "e1"},
                                          {"event_type", "video.created"},
                                          {"aggregate_id", "v1"},
                                          {"aggregate_type", "video"},
                                          {"version", "7"},
                                          {"occurred_at", "2025-10-24T12:30:00.5+02:00"},
                                          {"schema_version", "v1"},
                                          {"correlation_id", "c"}}));
  EXPECT_EQ(event.poison, "");
  EXPECT_EQ(event.event_id, "e1");
  EXPECT_EQ(event.event_type, "video.created");
  EXPECT_EQ(event.aggregate_id, "v1");
  EXPECT_EQ(event.aggregate_type, "video");
  EXPECT_EQ(event.version, 7);
  EXPECT_EQ(pubsub::FormatRfc3339(event.occurred_at.value()), "2025-10-24T10:30:00.500Z");
  EXPECT_EQ(event.payload, "\x08\x01 not json");
  EXPECT_EQ(json::parse(event.attributes),
            (json{{"schema_version", "v1"}, {"correlation_id", "c"}}));
}

TEST(EventTest, AnOutsideClientsJsonBodyGivesWhatTheAttributesLack) {
  const std::string body = R"({"eventId":"evt_2a87","eventType":"USER_REGISTERED","userId":"usr_1",
      "points":100,"timestamp":"2023-10-27T10:00:00Z"})";
  ReceivedEvent event = Parse(Message(body));
  EXPECT_EQ(event.poison, "");
  EXPECT_EQ(event.event_id, "evt_2a87");
  EXPECT_EQ(event.event_type, "USER_REGISTERED");
  EXPECT_EQ(event.aggregate_id, std::nullopt);
  EXPECT_EQ(event.version, std::nullopt);
  EXPECT_EQ(pubsub::FormatRfc3339(event.occurred_at.value()), "2023-10-27T10:00:00Z");
  EXPECT_EQ(event.payload, body);
  EXPECT_EQ(event.attributes, "{}");
}

TEST(EventTest, AttributesWinOverTheBody) {
  ReceivedEvent event = Parse(Message(R"({"event_id":"body","event_type":"body","version":3})",
                                      {{"event_id", "attribute"}, {"version", "9"}}));
  EXPECT_EQ(event.event_id, "attribute");
  EXPECT_EQ(event.event_type, "body");
  EXPECT_EQ(event.version, 9);
}

TEST(EventTest, SnakeCaseInTheBodyWinsOverCamelCase) {
  ReceivedEvent event = Parse(Message(R"({"eventId":"camel","event_id":"snake"})"));
  EXPECT_EQ(event.event_id, "snake");
}

TEST(EventTest, MembersOfAnotherMeaningAreLeftAlone) {
  ReceivedEvent event = Parse(
      Message(R"({"eventId":17,"version":"1.0","timestamp":1698400800,"aggregateId":{"a":1}})"));
  EXPECT_EQ(event.poison, "");
  EXPECT_EQ(event.event_id, "17");
  EXPECT_EQ(event.version, std::nullopt);
  EXPECT_EQ(event.occurred_at, std::nullopt);
  EXPECT_EQ(event.aggregate_id, std::nullopt);
}

TEST(EventTest, AMessageWithoutAnEventIdIsPoison) {
  for (const char* body : {"", "plain text", "{\"eventId\": ", "[1]", "{}", "{\"eventId\":\"\"}",
                           "{\"eventId\":\"\xff\"}"}) {
    ReceivedEvent event = Parse(Message(body, {{"event_type", "t"}}));
    EXPECT_NE(event.poison, "") << body;
    EXPECT_EQ(event.payload, body);
    EXPECT_EQ(event.event_type, "t");
  }
}

TEST(EventTest, MalformedStandardAttributesArePoison) {
  EXPECT_NE(Parse(Message("", {{"event_id", "e"}, {"version", "1x"}})).poison, "");
  EXPECT_NE(Parse(Message("", {{"event_id", "e"}, {"version", ""}})).poison, "");
  EXPECT_NE(Parse(Message("", {{"event_id", "e"}, {"version", "9223372036854775808"}})).poison, "");
  EXPECT_NE(Parse(Message("", {{"event_id", "e"}, {"occurred_at", "yesterday"}})).poison, "");
}

TEST(EventTest, NulCharactersArePoisonAndDoNotReachTheServer) {
  ReceivedEvent event = Parse(Message("", {{"event_id", "e"}, {"note", std::string("a\0b", 3)}}));
  EXPECT_NE(event.poison, "");
  EXPECT_EQ(json::parse(event.attributes)["note"], "a\uFFFDb");
  event = Parse(Message(R"({"eventId":"e","eventType":"a\u0000b"})"));
  EXPECT_NE(event.poison, "");
  EXPECT_EQ(event.event_type, std::nullopt);
}

TEST(EventTest, ANulOrABadByteIsFoundAtEveryPlace) {
  for (size_t size = 1; size < 40; ++size) {
    for (size_t at = 0; at < size; ++at) {
      std::string text(size, 'a');
      EXPECT_EQ(Parse(Message("", {{"event_id", text}})).poison, "");
      text[at] = '\0';
      EXPECT_EQ(Parse(Message("", {{"event_id", text}})).poison,
                "an attribute holds a NUL character");
      text[at] = '\xFF';
      EXPECT_EQ(Parse(Message("", {{"event_id", text}})).poison, "an attribute is not valid UTF-8");
    }
  }
}

TEST(EventTest, ATraceOfGooglesClientsHasItsStandardNameToo) {
  json attributes = json::parse(
      Parse(Message("", {{"event_id", "e"}, {"googclient_traceparent", "p"}})).attributes);
  EXPECT_EQ(attributes, json({{"googclient_traceparent", "p"}, {"traceparent", "p"}}));
  attributes = json::parse(
      Parse(
          Message("", {{"event_id", "e"}, {"traceparent", "own"}, {"googclient_traceparent", "p"}}))
          .attributes);
  EXPECT_EQ(attributes["traceparent"], "own");
}

TEST(EventTest, TheTraceIdComesFromTraceIdOrTraceparent) {
  EXPECT_EQ(TraceId(Message("", {{"trace_id", "t"}})), "t");
  EXPECT_EQ(TraceId(Message(
                "", {{"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}})),
            "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(TraceId(Message("", {})), "");
}

TEST(EventTest, AttributesOfAnyCharactersAreJson) {
  const std::string odd = "a \"quoted\" \\ path\n\x01\x1F\x7F \xC3\xA9";
  const ReceivedEvent event =
      Parse(Message("", {{"event_id", "e1"}, {odd, odd}, {"googclient_tracestate", "s"}}));
  EXPECT_EQ(event.poison, "");
  const auto object = json::parse(event.attributes);
  EXPECT_EQ(object.size(), 3u);
  EXPECT_EQ(object[odd], odd);
  EXPECT_EQ(object["tracestate"], "s");
}

TEST(EventTest, AnAttributeThatIsNotUtf8IsPoison) {
  const ReceivedEvent event =
      Parse(Message("", {{"event_id", "e1"}, {"event_type", "caf\xE9"}, {"note", "\xFF"}}));
  EXPECT_EQ(event.poison, "an attribute is not valid UTF-8");
  EXPECT_FALSE(event.event_type);
  EXPECT_EQ(json::parse(event.attributes)["note"], "\xEF\xBF\xBD");
}

}  // namespace
}  // namespace postbox::puller

#include "worker/puller/received_event.h"

#include <gtest/gtest.h>

#include <limits>
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

std::string PoisonOf(const std::string& members) {
  return Parse(Message("{" + members + "}", {{"event_id", "e"}})).poison;
}

TEST(EventTest, AVersionInTheBodyIsAWholeNumberHoweverItIsWritten) {
  for (const char* three : {"3", "\"3\"", "3.0", "30e-1", "0.3E+1", "\"\\u0033\""}) {
    const ReceivedEvent event =
        Parse(Message(std::string("{\"version\":") + three + "}", {{"event_id", "e"}}));
    EXPECT_EQ(event.poison, "") << three;
    EXPECT_EQ(event.version, 3) << three;
  }
  const auto version = [](const std::string& text) {
    return Parse(Message("{\"version\":" + text + "}", {{"event_id", "e"}})).version;
  };
  // A number of floating point would be another one.
  EXPECT_EQ(version("9223372036854775807.0"), 9223372036854775807);
  EXPECT_EQ(version("-9223372036854775808"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(version("\"-9223372036854775808\""), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(version("-0.0"), 0);
  EXPECT_EQ(version("null"), std::nullopt);
}

TEST(EventTest, AVersionInTheBodyThatIsNoBigintIsPoison) {
  for (const char* odd :
       {"9223372036854775808", "-9223372036854775809", "18446744073709551616", "1e19", "1e400",
        "1e-400", "3.5", "\"+4\"", "\"3.0\"", "\"1.0\"", "\" 4\"", "\"9223372036854775808\"",
        "\"\"", "\"-\"", "\"1,000\"", "\"1_000\"", "\"1e+3\""}) {
    const ReceivedEvent event =
        Parse(Message(std::string("{\"version\":") + odd + "}", {{"event_id", "e"}}));
    EXPECT_EQ(event.poison, "member version of the JSON body is not a bigint") << odd;
    EXPECT_EQ(event.version, std::nullopt) << odd;
    EXPECT_FALSE(event.version_left_alone) << odd;
  }
}

// It is that of a schema, a document or an interface.
TEST(EventTest, AVersionInTheBodyThatNobodyCanMeanAsANumberIsLeftAloneAndTold) {
  for (const char* other :
       {"\"1.2.0\"", "\"1.2.0-rc1\"", "\"v1\"", "\"2024-05-01\"", "\"2024-05\"", "\"latest\"",
        "\"\\u0000\"", "\"\\ud800\"", "true", "false", "[]", "[3]", "{}", "{\"a\":3}"}) {
    const ReceivedEvent event =
        Parse(Message(std::string("{\"version\":") + other + "}", {{"event_id", "e"}}));
    EXPECT_EQ(event.poison, "") << other;
    EXPECT_EQ(event.version, std::nullopt) << other;
    EXPECT_TRUE(event.version_left_alone) << other;
  }
  const ReceivedEvent event =
      Parse(Message(R"({"version":"1.2.0"})", {{"event_id", "e"}, {"version", "3"}}));
  EXPECT_EQ(event.version, 3);
  EXPECT_FALSE(event.version_left_alone);
}

TEST(EventTest, AnIdInTheBodyIsATextOrAWholeNumber) {
  const auto id = [](const std::string& text) {
    const ReceivedEvent event =
        Parse(Message("{\"aggregateId\":" + text + "}", {{"event_id", "e"}}));
    EXPECT_EQ(event.poison, "") << text;
    return std::string(event.aggregate_id.value_or("none"));
  };
  EXPECT_EQ(id("17"), "17");
  EXPECT_EQ(id("-17.0"), "-17");
  EXPECT_EQ(id("18446744073709551616"), "18446744073709551616");
  EXPECT_EQ(id("1e3"), "1000");
  EXPECT_EQ(id("\"007\""), "007");
  EXPECT_EQ(id("\"a\\u0062\\n\\ud83d\\ude00\""), "ab\n\xF0\x9F\x98\x80");
  EXPECT_EQ(id("null"), "none");
  EXPECT_EQ(id("\"\""), "none");
}

TEST(EventTest, AMemberOfTheBodyThatCannotBeItsFieldIsPoison) {
  for (const char* name : {"event_type", "eventType", "aggregate_type", "aggregateType",
                           "aggregate_id", "aggregateId"}) {
    const std::string member = "\"" + std::string(name) + "\":";
    const std::string of_body = "member " + std::string(name) + " of the JSON body ";
    for (const char* odd : {"true", "[]", "{\"a\":1}", "1.5", "1e41", "1e400"}) {
      EXPECT_EQ(PoisonOf(member + odd), of_body + "is neither a string nor a whole number") << odd;
    }
    EXPECT_EQ(PoisonOf(member + "\"a\\u0000\""), of_body + "holds a NUL character");
    EXPECT_EQ(PoisonOf(member + "\"a\\ud800\""), of_body + "holds half of a surrogate pair");
  }
  EXPECT_EQ(Parse(Message(R"({"event_id":[1],"eventId":"e"})")).poison,
            "member event_id of the JSON body is neither a string nor a whole number");
  for (const char* name : {"occurred_at", "occurredAt"}) {
    const std::string poison =
        "member " + std::string(name) +
        " of the JSON body is not an RFC 3339 time in the years 0001 to 9999";
    for (const char* odd : {"1698400800", "\"yesterday\"", "\"\"", "{}",
                            "\"9999-12-31T23:30:00-01:00\"", "\"0001-01-01T00:30:00+01:00\""}) {
      EXPECT_EQ(PoisonOf("\"" + std::string(name) + "\":" + odd), poison) << odd;
    }
  }
}

// It is a word of many meanings.
TEST(EventTest, ATimestampThatIsNoRfc3339TimeIsLeftAlone) {
  for (const char* odd : {"1698400800", "\"yesterday\"", "{}", "\"9999-12-31T23:30:00-01:00\""}) {
    const ReceivedEvent event =
        Parse(Message(std::string("{\"timestamp\":") + odd + "}", {{"event_id", "e"}}));
    EXPECT_EQ(event.poison, "") << odd;
    EXPECT_EQ(event.occurred_at, std::nullopt) << odd;
  }
}

TEST(EventTest, OfSeveralMembersWithOneNameTheLastCounts) {
  const ReceivedEvent event = Parse(Message(
      R"({"version":"x","event_id":"e","vers\u0069on":4,"event_type":"a","event_type":"b"})"));
  EXPECT_EQ(event.poison, "");
  EXPECT_EQ(event.version, 4);
  EXPECT_EQ(event.event_type, "b");
}

TEST(EventTest, WhatIsBesideTheFieldsOfABodyDoesNotMatter) {
  const std::string deep(100'000, '[');
  const ReceivedEvent event =
      Parse(Message(R"({"a":"\ud800\u0000","n":1e99999,"d":)" + deep +
                    std::string(deep.size(), ']') + R"(,"eventId":"e","version":4})"));
  EXPECT_EQ(event.poison, "");
  EXPECT_EQ(event.event_id, "e");
  EXPECT_EQ(event.version, 4);
}

TEST(EventTest, ABodyThatIsNotJsonHasNoFields) {
  for (const char* body : {"{\"version\":4", "{\"version\":4}x", "{\"version\":04}", "[4]", "4",
                           "{\"version\":4,\"a\":\"\xFF\"}", "\xEF\xBB\xBF{\"version\":4}"}) {
    const ReceivedEvent event = Parse(Message(body, {{"event_id", "e"}}));
    EXPECT_EQ(event.poison, "") << body;
    EXPECT_EQ(event.version, std::nullopt) << body;
  }
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
  for (const char* odd : {"1x", "", "+4", "3.0", "9223372036854775808"}) {
    EXPECT_EQ(Parse(Message("", {{"event_id", "e"}, {"version", odd}})).poison,
              "attribute version is not a bigint");
  }
  // The last two are moved out of the years of a time by their offsets.
  for (const char* odd :
       {"", "yesterday", "9999-12-31T23:30:00-01:00", "0001-01-01T00:30:00+01:00"}) {
    EXPECT_EQ(Parse(Message("", {{"event_id", "e"}, {"occurred_at", odd}})).poison,
              "attribute occurred_at is not an RFC 3339 time in the years 0001 to 9999");
  }
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

#include "proto/rules/attributes.h"

#include <gtest/gtest.h>

#include <string>

namespace postbox::pubsub {
namespace {

constexpr std::int64_t kSecond = 1'000'000;

TEST(Rfc3339, TimesAreWrittenInUtcWithAsManyDigitsAsNeeded) {
  EXPECT_EQ(FormatRfc3339(0), "1970-01-01T00:00:00Z");
  EXPECT_EQ(FormatRfc3339(1'761'301'800 * kSecond), "2025-10-24T10:30:00Z");
  EXPECT_EQ(FormatRfc3339(1'761'301'800 * kSecond + 120'000), "2025-10-24T10:30:00.120Z");
  EXPECT_EQ(FormatRfc3339(1'761'301'800 * kSecond + 1), "2025-10-24T10:30:00.000001Z");
  EXPECT_EQ(FormatRfc3339(-1), "1969-12-31T23:59:59.999999Z");
  EXPECT_EQ(FormatRfc3339(951'782'400 * kSecond), "2000-02-29T00:00:00Z");
  EXPECT_EQ(FormatRfc3339(kMinRfc3339Micros), "0001-01-01T00:00:00Z");
  EXPECT_EQ(FormatRfc3339(kMaxRfc3339Micros), "9999-12-31T23:59:59.999999Z");
  EXPECT_EQ(FormatRfc3339(INT64_MIN), "0001-01-01T00:00:00Z");
  EXPECT_EQ(FormatRfc3339(INT64_MAX), "9999-12-31T23:59:59.999999Z");
}

TEST(Rfc3339, WhatWasWrittenIsReadBack) {
  for (std::int64_t micros = kMinRfc3339Micros; micros < kMaxRfc3339Micros;
       micros += 86'399'999'983 * 37) {
    std::int64_t read = 0;
    ASSERT_TRUE(ParseRfc3339(FormatRfc3339(micros), &read)) << FormatRfc3339(micros);
    ASSERT_EQ(read, micros) << FormatRfc3339(micros);
  }
}

TEST(Rfc3339, OffsetsLowerCaseAndLongFractionsAreRead) {
  const auto read = [](std::string_view text) {
    std::int64_t micros = -1;
    EXPECT_TRUE(ParseRfc3339(text, &micros)) << text;
    return micros;
  };
  EXPECT_EQ(read("2025-10-24T12:30:00+02:00"), 1'761'301'800 * kSecond);
  EXPECT_EQ(read("2025-10-24T05:00:00-05:30"), 1'761'301'800 * kSecond);
  EXPECT_EQ(read("2025-10-24t10:30:00.123456789z"), 1'761'301'800 * kSecond + 123'456);
  EXPECT_EQ(read("2016-12-31T23:59:60Z"), 1'483'228'800 * kSecond);
}

TEST(Rfc3339, ATimeThatItsOffsetMovesOutOfTheRangeIsNotRead) {
  std::int64_t micros = 0;
  for (const char* text : {"0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01",
                           "9999-12-31T23:59:60Z", "9999-12-31T23:59:60.999999-23:59"}) {
    EXPECT_FALSE(ParseRfc3339(text, &micros)) << text;
  }
  for (const char* text : {"0001-01-01T00:01:00+00:01", "9999-12-31T23:58:59.999999-00:01"}) {
    EXPECT_TRUE(ParseRfc3339(text, &micros)) << text;
  }
}

TEST(Rfc3339, WhatIsNoTimeIsNotRead) {
  for (const char* bad :
       {"", "now", "2025-10-24", "2025-10-24T10:30:00", "2025-10-24T10:30Z", "2025-13-01T00:00:00Z",
        "2025-02-29T00:00:00Z", "2025-10-24T24:00:00Z", "2025-10-24T10:60:00Z",
        "2025-10-24T10:30:00.Z", "2025-10-24T10:30:00Zx", "2025-10-24T10:30:00+2:00",
        "2025-10-24T10:30:00+02", "-025-10-24T10:30:00Z", "0000-10-24T10:30:00Z"}) {
    std::int64_t micros = 0;
    EXPECT_FALSE(ParseRfc3339(bad, &micros)) << bad;
  }
}

TEST(AttributesTest, TheSevenStandardAttributesComeFirstAndCannotBeReplaced) {
  const StandardFields fields{.event_id = "550e8400-e29b-41d4-a716-446655440000",
                              .event_type = "video.created",
                              .aggregate_id = "v1",
                              .aggregate_type = "video",
                              .version = 3,
                              .occurred_at_micros = 1'761'301'800 * kSecond,
                              .schema_version = "v1"};
  const Attributes extra = {{"correlation_id", "c"}, {"version", "99"}};
  const Attributes expected = {{"event_id", "550e8400-e29b-41d4-a716-446655440000"},
                               {"event_type", "video.created"},
                               {"aggregate_id", "v1"},
                               {"aggregate_type", "video"},
                               {"version", "3"},
                               {"occurred_at", "2025-10-24T10:30:00Z"},
                               {"schema_version", "v1"},
                               {"correlation_id", "c"}};
  const StandardAttributes standard(fields);
  Attributes all;
  for (const auto& [key, value] : standard.With(extra)) all.emplace_back(key, value);
  EXPECT_EQ(all, expected);
  EXPECT_EQ(standard.views().size(), kStandardAttributes.size());
  EXPECT_EQ(*FindAttribute(expected, kVersion), "3");
  EXPECT_EQ(FindAttribute(expected, "nothing"), nullptr);
}

Attributes WithTraceNames(Attributes attributes) {
  CompleteTraceNames(&attributes);
  return attributes;
}

TEST(AttributesTest, ATraceGoesOutUnderTheStandardNameAndThatOfGooglesClients) {
  const Attributes both = {{"traceparent", "p"}, {"googclient_traceparent", "p"}};
  EXPECT_EQ(WithTraceNames({{"traceparent", "p"}}), both);
  EXPECT_EQ(WithTraceNames({{"googclient_traceparent", "p"}}),
            (Attributes{{"googclient_traceparent", "p"}, {"traceparent", "p"}}));
  EXPECT_EQ(WithTraceNames({{"a", "b"}, {"tracestate", "s"}, {"traceparent", "p"}}),
            (Attributes{{"a", "b"},
                        {"tracestate", "s"},
                        {"traceparent", "p"},
                        {"googclient_traceparent", "p"},
                        {"googclient_tracestate", "s"}}));
}

TEST(AttributesTest, WhoeverSetsBothNamesOfATraceHasWhatHeSet) {
  const Attributes both = {{"googclient_traceparent", "p"}, {"traceparent", "q"}};
  EXPECT_EQ(WithTraceNames(both), both);
  EXPECT_EQ(WithTraceNames({{"a", "b"}}), (Attributes{{"a", "b"}}));
}

TEST(AttributesTest, AMessageWithAsManyAttributesAsItMayHaveKeepsItsTraceUnderOneName) {
  Attributes full = {{"traceparent", "p"}};
  while (full.size() < 100) full.emplace_back("a" + std::to_string(full.size()), "v");
  EXPECT_EQ(WithTraceNames(full), full);
  full.pop_back();
  EXPECT_EQ(WithTraceNames(full).size(), 100U);
}

TEST(AttributesTest, AnEventsTraceIsAmongItsAttributes) {
  const StandardAttributes standard({"e", "t", "k", "a", 1, 1'761'301'800 * kSecond, "v1"});
  const Attributes extra = {{"traceparent", "p"}};
  const std::vector<AttributeView> all = standard.With(extra);
  ASSERT_EQ(all.size(), 9U);
  EXPECT_EQ(all.back(), AttributeView("googclient_traceparent", "p"));
}

TEST(AttributesTest, TheTraceIdIsTakenFromATraceparent) {
  EXPECT_EQ(TraceIdOf("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
            "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(TraceIdOf("nonsense"), "");
  EXPECT_EQ(TraceIdOf(""), "");
  EXPECT_EQ(TraceIdOf("00-4bf92f3577b34da6a3ce929d0e0e473\n-00f067aa0ba902b7-01"), "")
      << "an id is hex digits";
}

TEST(AttributesTest, TheTraceOfAMessageIsThatOfItsTraceparentOrElseItsTraceId) {
  const std::string id = "4bf92f3577b34da6a3ce929d0e0e4736";
  const std::string parent = "00-" + id + "-00f067aa0ba902b7-01";
  EXPECT_EQ(TraceIdAmong(Attributes{{"trace_id", "t"}, {"traceparent", parent}}), id);
  EXPECT_EQ(TraceIdAmong(Attributes{{"googclient_traceparent", parent}}), id);
  EXPECT_EQ(TraceIdAmong(Attributes{{"trace_id", "t"}, {"traceparent", "nonsense"}}), "t");
  EXPECT_EQ(TraceIdAmong(Attributes{{"a", "b"}}), "");
}

}  // namespace
}  // namespace postbox::pubsub

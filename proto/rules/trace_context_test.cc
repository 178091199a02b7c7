#include "proto/rules/trace_context.h"

#include <gtest/gtest.h>

#include <set>

namespace postbox::pubsub {
namespace {

constexpr char kText[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(TraceContextTest, ATraceparentIsReadAndWritten) {
  const auto context = ParseTraceparent(kText);
  ASSERT_TRUE(context);
  EXPECT_EQ(context->trace_high, 0x4bf92f3577b34da6U);
  EXPECT_EQ(context->trace_low, 0xa3ce929d0e0e4736U);
  EXPECT_EQ(context->span, 0x00f067aa0ba902b7U);
  EXPECT_TRUE(context->sampled());
  EXPECT_EQ(FormatTraceparent(*context), kText);
}

TEST(TraceContextTest, TheFlagSaysWhetherItIsSampled) {
  EXPECT_FALSE(ParseTraceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00")
                   .value()
                   .sampled());
  const auto all = ParseTraceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-ff");
  ASSERT_TRUE(all);
  EXPECT_TRUE(all->sampled());
  // Flags that version 00 does not know are not passed on.
  EXPECT_EQ(FormatTraceparent(*all), "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03");
}

TEST(TraceContextTest, ALaterVersionMayGoOn) {
  const std::string tail = "-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  EXPECT_TRUE(ParseTraceparent("01" + tail));
  EXPECT_TRUE(ParseTraceparent("cc" + tail + "-what-the-future-brings"));
  EXPECT_FALSE(ParseTraceparent("cc" + tail + ".what"));
  EXPECT_FALSE(ParseTraceparent("00" + tail + "-more"));
  EXPECT_FALSE(ParseTraceparent("ff" + tail));
}

TEST(TraceContextTest, OtherTextsAreNoContext) {
  const std::string good = kText;
  EXPECT_FALSE(ParseTraceparent(""));
  EXPECT_FALSE(ParseTraceparent(std::string(1024, '0')));
  EXPECT_FALSE(ParseTraceparent(std::string(55, '-')));
  EXPECT_FALSE(ParseTraceparent(std::string(55, '\0')));
  EXPECT_FALSE(ParseTraceparent(std::string_view(good).substr(0, 54)));
  EXPECT_FALSE(ParseTraceparent(good + "\n"));
  EXPECT_FALSE(ParseTraceparent(" " + good));
  EXPECT_FALSE(ParseTraceparent("00-00000000000000000000000000000000-00f067aa0ba902b7-01"));
  EXPECT_FALSE(ParseTraceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01"));
  // Each byte, replaced by what cannot stand there.
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const char bad : {'A', 'g', '\xff', '\0', '\''}) {
      std::string text = good;
      text[i] = bad;
      EXPECT_FALSE(ParseTraceparent(text)) << text;
    }
  }
}

TEST(TraceContextTest, EitherNameOfTheAttributeCounts) {
  const Attributes standard = {{"a", "b"}, {"traceparent", kText}};
  const Attributes of_clients = {{"googclient_traceparent", kText}, {"traceparent", "nonsense"}};
  EXPECT_EQ(FindTraceContext(standard), ParseTraceparent(kText));
  EXPECT_EQ(FindTraceContext(of_clients), ParseTraceparent(kText));
  const Attributes both = {
      {"googclient_traceparent", "00-00000000000000000000000000000001-00f067aa0ba902b7-01"},
      {"traceparent", kText}};
  EXPECT_EQ(FindTraceContext(both), ParseTraceparent(kText));
  EXPECT_FALSE(FindTraceContext(Attributes{{"trace_id", kText}}));
}

TEST(TraceContextTest, TheSpanOfAnEventIsThatOfItsTopic) {
  const std::string id = "0192f0c1-0000-7000-8000-00000000abcd";
  EXPECT_EQ(CreateSpanId("projects/p/topics/t", id), CreateSpanId("projects/p/topics/t", id));
  std::set<std::uint64_t> spans = {0, CreateSpanId("projects/p/topics/t", id),
                                   CreateSpanId("projects/p/topics/u", id)};
  for (int i = 0; i < 10'000; ++i) spans.insert(CreateSpanId("t", "event-" + std::to_string(i)));
  EXPECT_EQ(spans.size(), 10'003U);
}

}  // namespace
}  // namespace postbox::pubsub

#include "proto/rules/message_check.h"

#include <gtest/gtest.h>

#include <string>

#include "proto/rules/attributes.h"

namespace postbox::pubsub {
namespace {

using Kind = MessageProblem::Kind;

constexpr std::size_t kTopicLength = 40;

TEST(Utf8, ValidTextOfEveryLengthIsTaken) {
  EXPECT_TRUE(IsValidUtf8(""));
  EXPECT_TRUE(IsValidUtf8(std::string_view("a\0b", 3)));
  EXPECT_TRUE(
      IsValidUtf8("\x7F \xC2\x80 \xDF\xBF \xE0\xA0\x80 \xED\x9F\xBF \xEE\x80\x80 \xEF\xBF\xBF"));
  EXPECT_TRUE(IsValidUtf8("\xF0\x90\x80\x80 \xF4\x8F\xBF\xBF"));
}

TEST(Utf8, OverlongFormsSurrogatesTruncationAndTooLargeCodesAreNotTaken) {
  for (const char* bad :
       {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xED\xBF\xBF",
        "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xC3", "\xE2\x82",
        "\xF0\x9F\x98", "\xC3(", "\xE2(\xA1", "\xE2\x82("}) {
    EXPECT_FALSE(IsValidUtf8(bad)) << testing::PrintToString(bad);
    EXPECT_FALSE(IsValidUtf8(std::string("good") + bad + "good")) << testing::PrintToString(bad);
  }
  EXPECT_EQ(FirstInvalidUtf8("ab\xFF"), 2u);
}

TEST(Utf8, ABadByteIsFoundAtEveryPlace) {
  for (std::size_t size = 1; size < 40; ++size) {
    EXPECT_EQ(FirstInvalidUtf8(std::string(size, 'a')), size);
    for (std::size_t at = 0; at < size; ++at) {
      std::string text(size, 'a');
      text[at] = '\0';
      EXPECT_LE(SkipAscii(text, 0), at);
      EXPECT_TRUE(IsValidUtf8(text));
      text[at] = '\x80';
      EXPECT_LE(SkipAscii(text, 0), at);
      EXPECT_EQ(FirstInvalidUtf8(text), at) << size;
    }
  }
}

TEST(MessageCheck, AnOrderingKeyMayBe1024BytesLong) {
  const Attributes none;
  EXPECT_FALSE(CheckMessage("x", none, std::string(1024, 'k')));
  const auto problem = CheckMessage("x", none, std::string(1025, 'k'));
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->kind, Kind::kLimitExceeded);
  EXPECT_EQ(problem->what, "ordering key is 1025 bytes long");
  EXPECT_EQ(problem->limit, "Pub/Sub allows an ordering key of at most 1024 bytes.");
  EXPECT_FALSE(problem->hint.empty());
}

TEST(MessageCheck, AttributeNamesAndValuesAreCheckedAtTheirBoundaries) {
  EXPECT_FALSE(CheckMessage("x", Attributes{{std::string(256, 'n'), std::string(1024, 'v')}}, ""));
  EXPECT_EQ(CheckMessage("x", Attributes{{std::string(257, 'n'), ""}}, "")->kind,
            Kind::kLimitExceeded);
  EXPECT_EQ(CheckMessage("x", Attributes{{"n", std::string(1025, 'v')}}, "")->kind,
            Kind::kLimitExceeded);
  EXPECT_EQ(CheckMessage("x", Attributes{{"", "v"}}, "")->kind, Kind::kInvalidAttribute);
  EXPECT_EQ(CheckMessage("x", Attributes{{"googclient", "v"}}, "")->kind, Kind::kInvalidAttribute);
  EXPECT_EQ(CheckMessage("x", Attributes{{"goog", "v"}}, "")->kind, Kind::kInvalidAttribute);
  EXPECT_FALSE(CheckMessage("x", Attributes{{"goo", "v"}, {"agoog", "v"}}, ""));
  // The context of a trace, as Google's clients name it.
  EXPECT_FALSE(CheckMessage(
      "x", Attributes{{"googclient_traceparent", "v"}, {"googclient_tracestate", "v"}}, ""));
  EXPECT_EQ(CheckMessage("x", Attributes{{"googclient_schemaname", "v"}}, "")->kind,
            Kind::kInvalidAttribute);
}

TEST(MessageCheck, AMessageMayHave100Attributes) {
  Attributes attributes;
  for (int i = 0; i < 100; ++i) attributes.emplace_back("a" + std::to_string(i), "v");
  EXPECT_FALSE(CheckMessage("x", attributes, "k"));
  attributes.emplace_back("one more", "v");
  const auto problem = CheckMessage("x", attributes, "k");
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->what, "message has 101 attributes");
}

TEST(MessageCheck, InvalidUtf8IsRefusedEverywhereButInTheData) {
  EXPECT_FALSE(CheckMessage("\xFF\xFE", Attributes{}, "k"));
  EXPECT_EQ(CheckMessage("x", Attributes{}, "k\xFF")->kind, Kind::kInvalidUtf8);
  EXPECT_EQ(CheckMessage("x", Attributes{{"n\xFF", "v"}}, "")->kind, Kind::kInvalidUtf8);
  const auto problem = CheckMessage("x", Attributes{{"n", "v\xFF"}}, "");
  EXPECT_EQ(problem->kind, Kind::kInvalidUtf8);
  EXPECT_EQ(problem->what, "value of attribute \"n\" is not valid UTF-8");
}

TEST(MessageCheck, AnEmptyMessageIsRefused) {
  EXPECT_EQ(CheckMessage("", Attributes{}, "k")->kind, Kind::kEmptyMessage);
  EXPECT_FALSE(CheckMessage("", Attributes{{"a", ""}}, "k"));
}

TEST(MessageCheck, ARequestWithOneMessageMayBeExactlyTenMillionBytesLong) {
  const Attributes attributes = {{"event_id", "1"}};
  // Around this size the length of the data is a varint of 4 bytes, and so is that of the message.
  const std::size_t overhead =
      EmptyRequestSize(kTopicLength) + 5 + MessageSize("", attributes, "key") + 5;
  std::string data(kMaxRequestBytes - overhead, 'd');
  ASSERT_EQ(
      EmptyRequestSize(kTopicLength) + MessageSizeInRequest(MessageSize(data, attributes, "key")),
      kMaxRequestBytes);
  EXPECT_FALSE(CheckMessage(data, attributes, "key", kTopicLength));
  data += 'd';
  const auto problem = CheckMessage(data, attributes, "key", kTopicLength);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->kind, Kind::kLimitExceeded);
  EXPECT_NE(problem->what.find("10000001 bytes"), std::string::npos) << problem->what;
  EXPECT_TRUE(CheckMessage(data.substr(1), attributes, "key"))
      << "an unknown topic is taken for the longest";
}

TEST(MessageCheck, ErrorTextsQuoteHostileNamesSafely) {
  const auto problem = CheckMessage("x", Attributes{{"a\n" + std::string(300, '\xC3'), "v"}}, "");
  ASSERT_TRUE(problem);
  EXPECT_TRUE(IsValidUtf8(problem->what));
  EXPECT_EQ(problem->what.find('\n'), std::string::npos);
  const auto long_name =
      CheckMessage("x", Attributes{{std::string(63, 'a') + std::string(200, 'b'), "v"}}, "");
  EXPECT_LT(long_name->what.size(), 150u);
}

}  // namespace
}  // namespace postbox::pubsub

// The grammar of filters, as a table: what Google documents as valid and invalid, and its
// consequences.
#include "worker/emulator/rules/filter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "worker/emulator/rules/service_limits.h"

namespace postbox::emulator {
namespace {

using ::testing::HasSubstr;
using Attributes = std::map<std::string, std::string>;

bool Matches(const std::string& text, const Attributes& attributes) {
  const auto filter = Filter::Parse(text);
  EXPECT_TRUE(filter.ok()) << text << ": " << filter.status();
  if (!filter.ok()) return false;
  google::pubsub::v1::PubsubMessage message;
  message.mutable_attributes()->insert(attributes.begin(), attributes.end());
  return filter->Matches(message);
}

struct Good {
  const char* text;
  std::vector<Attributes> matching;
  std::vector<Attributes> others;
};

const Attributes kNone = {};
const Attributes kCom = {{"name", "com"}};
const Attributes kNet = {{"name", "net"}};
const Attributes kOrg = {{"name", "org"}};
const Attributes kTag = {{"iana.org/language_tag", "en"}};

Attributes Both(Attributes left, const Attributes& right) {
  left.insert(right.begin(), right.end());
  return left;
}

void ExpectAll(const std::vector<Good>& table) {
  for (const Good& row : table) {
    for (const Attributes& attributes : row.matching) {
      EXPECT_TRUE(Matches(row.text, attributes))
          << row.text << " " << testing::PrintToString(attributes);
    }
    for (const Attributes& attributes : row.others) {
      EXPECT_FALSE(Matches(row.text, attributes))
          << row.text << " " << testing::PrintToString(attributes);
    }
  }
}

TEST(Filter, ComparesKeysAndValuesExactly) {
  ExpectAll({
      {"attributes:name", {kCom, {{"name", ""}}}, {kNone, {{"Name", "com"}}, {{"names", "com"}}}},
      {"attributes:\"name\"", {kCom}, {kNone}},
      {"attributes.name = \"com\"", {kCom}, {kNone, kNet, {{"name", "COM"}}, {{"name", "com "}}}},
      {"attributes.name=\"com\"", {kCom}, {kNet}},
      {"attributes.name = \"\"", {{{"name", ""}}}, {kNone, kCom}},
      {"attributes.name != \"com\"", {kNone, kNet, {{"name", "COM"}}}, {kCom}},
      {"attributes.name!=\"com\"", {kNet}, {kCom}},
      {"attributes.\"iana.org/language_tag\" = \"en\"", {kTag}, {kNone, kCom}},
      {"attributes:\"iana.org/language_tag\"", {kTag}, {kCom}},
      {"attributes.\"a b\" != \"c\"", {kNone, {{"a b", "d"}}}, {{{"a b", "c"}}}},
      {"attributes.ce-type = \"x\"", {{{"ce-type", "x"}}}, {kNone}},
      {"attributes:_a-1", {{{"_a-1", ""}}}, {kNone}},
      {"attributes:1", {{{"1", ""}}}, {kNone}},
      {"attributes:attributes", {{{"attributes", ""}}}, {kNone}},
      {"attributes:hasPrefix", {{{"hasPrefix", ""}}}, {kNone}},
      {"attributes:\"AND\"", {{{"AND", ""}}}, {kNone}},
      {"hasPrefix(attributes.name, \"co\")",
       {kCom, {{"name", "co"}}},
       {kNone, kNet, {{"name", "c"}}}},
      {"hasPrefix(attributes.name,\"co\")", {kCom}, {kNet}},
      {"hasPrefix(attributes.name, \"\")", {kCom, {{"name", ""}}}, {kNone}},
      {"hasPrefix(attributes.\"a/b\", \"CO\")", {{{"a/b", "COM"}}}, {kNone, {{"a/b", "com"}}}},
      {"\n attributes:name\t", {kCom}, {kNone}},
  });
}

TEST(Filter, CombinesWithUpperCaseOperators) {
  ExpectAll({
      {"NOT attributes:name", {kNone, kTag}, {kCom}},
      {"-attributes:name", {kNone}, {kCom}},
      {"NOT attributes.name = \"com\"", {kNone, kNet}, {kCom}},
      {"NOT attributes.name != \"com\"", {kCom}, {kNone, kNet}},
      {"NOT hasPrefix(attributes.name, \"co\")", {kNone, kNet}, {kCom}},
      {"-hasPrefix(attributes.name, \"co\")", {kNone, kNet}, {kCom}},
      {"NOT (attributes:name)", {kNone}, {kCom}},
      {"NOT(attributes:name)", {kNone}, {kCom}},
      {"-(attributes:name OR attributes:x)", {kNone}, {kCom, {{"x", ""}}}},
      {"(attributes:name)", {kCom}, {kNone}},
      {"((attributes:name))", {kCom}, {kNone}},
      {"attributes:name AND attributes:x", {Both(kCom, {{"x", ""}})}, {kCom, {{"x", ""}}, kNone}},
      {"attributes:name OR attributes:x", {kCom, {{"x", ""}}}, {kNone, kTag}},
      {"attributes:a AND attributes:b AND attributes:c",
       {{{"a", ""}, {"b", ""}, {"c", ""}}},
       {{{"a", ""}, {"b", ""}}, {{"b", ""}, {"c", ""}}}},
      {"attributes:a OR attributes:b OR attributes:c", {{{"c", ""}}, {{"a", ""}}}, {kNone}},
      {"attributes:\"iana.org/language_tag\" AND NOT attributes.name = \"com\"",
       {kTag, Both(kTag, kNet)},
       {kNone, Both(kTag, kCom)}},
      {"attributes.name = \"com\" AND -attributes:\"iana.org/language_tag\"",
       {kCom},
       {Both(kTag, kCom), kTag}},
      {"attributes:\"iana.org/language_tag\" AND "
       "(attributes.name = \"net\" OR attributes.name = \"org\")",
       {Both(kTag, kNet), Both(kTag, kOrg)},
       {kTag, kNet, Both(kTag, kCom)}},
      {"NOT attributes:a OR attributes:b",
       {kNone, {{"b", ""}}, {{"a", ""}, {"b", ""}}},
       {{{"a", ""}}}},
      {"NOT attributes:a AND attributes:b", {{{"b", ""}}}, {kNone, {{"a", ""}, {"b", ""}}}},
      {"(attributes:a AND attributes:b) OR attributes:c",
       {{{"c", ""}}, {{"a", ""}, {"b", ""}}},
       {{{"a", ""}}}},
      {"(attributes:a AND (attributes:b OR -(attributes:c AND attributes:d)))",
       {{{"a", ""}}, {{"a", ""}, {"b", ""}, {"c", ""}, {"d", ""}}},
       {kNone, {{"a", ""}, {"c", ""}, {"d", ""}}}},
      {"(attributes:a)AND(attributes:b)", {{{"a", ""}, {"b", ""}}}, {{{"a", ""}}}},
  });
}

TEST(Filter, UnderstandsEscapesInStringsOnly) {
  ExpectAll({
      {R"(attributes:"\u307F\u3093\u306A")", {{{"みんな", ""}}}, {kNone, {{"みん", ""}}}},
      {"attributes:\"みんな\"", {{{"みんな", ""}}}, {kNone}},
      {R"(attributes.a = "\"b\"")", {{{"a", "\"b\""}}}, {{{"a", "b"}}}},
      {R"(attributes.a = "\\")", {{{"a", "\\"}}}, {kNone}},
      {R"(attributes.a = "it\'s")", {{{"a", "it's"}}}, {kNone}},
      {R"(attributes.a = "it's")", {{{"a", "it's"}}}, {kNone}},
      {R"(attributes.a = "\a\b\f\n\r\t\v")", {{{"a", "\a\b\f\n\r\t\v"}}}, {kNone}},
      {R"(attributes.a = "\x41\102c")", {{{"a", "ABc"}}}, {kNone}},
      {R"(attributes.a = "\xe9")", {{{"a", "é"}}}, {kNone}},
      {R"(attributes.a = "\U0001F600")", {{{"a", "😀"}}}, {kNone}},
      {R"(hasPrefix(attributes.a, "\u00e9"))", {{{"a", "été"}}}, {{{"a", "ete"}}}},
      {"attributes.a = \"(b) AND -c, NOT d\"", {{{"a", "(b) AND -c, NOT d"}}}, {kNone}},
  });
}

void ExpectRefused(const std::vector<const char*>& texts) {
  for (const char* text : texts) {
    const auto filter = Filter::Parse(text);
    EXPECT_EQ(filter.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(filter.status().message()), HasSubstr("filter")) << text;
  }
}

TEST(Filter, WhatIsNoExpressionIsRefused) {
  ExpectRefused({"", "  ", "()", "attributes", "attributes:", "attributes.", "attributes.name",
                 "attributes:name attributes:x", "name", "\"name\"", "attribute:name",
                 "Attributes:name", "data:name", "message.attributes:name", "true",
                 "attributes:name)", "(attributes:name", "attributes:name;", "*"});
}

TEST(Filter, OtherComparisonsAreRefused) {
  ExpectRefused(
      {"\"com\" = attributes.name", "attributes.name = attributes.website", "attributes.name = com",
       "attributes.name = 1", "attributes.name == \"com\"", "attributes.name <> \"com\"",
       "attributes.name > \"com\"", "attributes.name < \"com\"", "attributes.name ! = \"com\"",
       "attributes.name = 'com'", "attributes.name : \"com\"", "attributes:name = \"com\"",
       "attributes.name = \"com", "attributes.name =", "attributes.name = \"com\" = \"com\"",
       "attributes[\"name\"] = \"com\""});
}

TEST(Filter, KeysThatNeedQuotesAreRefusedWithoutThem) {
  ExpectRefused({"attributes:iana.org", "attributes.iana.org/language_tag = \"en\"",
                 "attributes:a/b", "attributes.a.b = \"c\"", "attributes:\"\"", "attributes:みんな",
                 "attributes:\\u307F\\u3093\\u306A", "attributes:*", "attributes:AND",
                 "attributes:NOT", "attributes:OR"});
}

TEST(Filter, OtherOperatorsAreRefused) {
  ExpectRefused({"attributes:name and attributes:x", "attributes:name or attributes:x",
                 "not attributes:name", "attributes:name && attributes:x", "!attributes:name",
                 "attributes:name AND", "AND attributes:name",
                 "attributes:name AND OR attributes:x", "NOT", "-", "NOT NOT attributes:name",
                 "--attributes:name", "NOT -attributes:name", "attributes:name NOT attributes:x",
                 "attributes:a ANDattributes:b", "NOTattributes:name"});
}

TEST(Filter, AndAndOrNeedParenthesesAndCompleteExpressions) {
  ExpectRefused(
      {"attributes:\"iana.org/language_tag\" AND attributes.name = \"net\" OR "
       "attributes.name = \"org\"",
       "attributes:a OR attributes:b AND attributes:c",
       "attributes:a AND (attributes:b AND attributes:c OR attributes:d)",
       "attributes.name = \"com\" AND (\"net\" OR \"org\")"});
}

TEST(Filter, OtherFunctionsAreRefused) {
  ExpectRefused({"hasPrefix(attributes.name)", "hasPrefix(attributes.name, co)",
                 "hasPrefix(attributes:name, \"co\")", "hasPrefix(\"co\", attributes.name)",
                 "hasPrefix(attributes.name, \"co\", \"de\")", "hasPrefix attributes.name, \"co\"",
                 "hasprefix(attributes.name, \"co\")", "hasSuffix(attributes.name, \"co\")",
                 "hasPrefix(attributes.name, \"co\"", "hasPrefix(name, \"co\")", "hasPrefix()",
                 "hasPrefix(attributes.name, \"co\") = \"co\"",
                 "matches(attributes.name, \"co.*\")"});
}

TEST(Filter, BadStringsAreRefused) {
  ExpectRefused({R"(attributes.a = "\z")", R"(attributes.a = "\x4")", R"(attributes.a = "\8")",
                 R"(attributes.a = "\12")", R"(attributes.a = "\u12")",
                 R"(attributes.a = "\U0001F60")", R"(attributes.a = "\ud800")",
                 R"(attributes.a = "\U00110000")", R"(attributes.a = "\")",
                 "attributes.a = \"b\nc\"", "attributes.a = \"b\tc\""});
}

TEST(Filter, ARefusalSaysWhereAndWhatToDo) {
  const auto message = [](const char* text) {
    return std::string(Filter::Parse(text).status().message());
  };
  EXPECT_THAT(message("attributes:a AND attributes:b OR attributes:c"),
              HasSubstr("parentheses around one of them, at byte 30"));
  EXPECT_THAT(message("attributes:a and attributes:b"), HasSubstr("\"and\", at byte 13"));
  EXPECT_THAT(message("attributes.a = b"), HasSubstr("a string in double quotes, at byte 15"));
  EXPECT_THAT(message("hasSuffix(attributes.a, \"b\")"), HasSubstr("hasSuffix"));
}

TEST(Filter, HasTwoHundredFiftySixBytesAtMost) {
  const std::string begin = "attributes:\"";
  const std::string longest = begin + std::string(kMaxFilterBytes - begin.size() - 1, 'a') + "\"";
  ASSERT_EQ(longest.size(), 256);
  EXPECT_TRUE(Filter::Parse(longest).ok());
  const auto refused = Filter::Parse(longest + " ");
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("257 bytes, at most 256"));
}

}  // namespace
}  // namespace postbox::emulator

#include "worker/cli/provision/document.h"

#include <gtest/gtest.h>

#include <string>

namespace postbox::cli {
namespace {

Json Good(const std::string& text, const std::string& name = "f.yaml") {
  std::string error;
  const auto document = ParseDocument(name, text, &error);
  EXPECT_EQ(error, "") << text;
  return document.value_or(Json("nothing"));
}

std::string Bad(const std::string& text, const std::string& name = "f.yaml") {
  std::string error;
  EXPECT_FALSE(ParseDocument(name, text, &error)) << text;
  return error;
}

TEST(ProvisionDocument, PlainScalarsOfYamlHaveTheirKindAndQuotedOnesAreTexts) {
  const Json document = Good(
      "a: 1\nb: '1'\nc: true\nd: \"true\"\ne: ~\nf: 1.5\ng: 7d\nh: |\n  two\n  lines\ni: inf\n"
      "k: 0x10\nl: [x, 2]\nm: {n: +3}\no:\n");
  EXPECT_EQ(document["a"], 1);
  EXPECT_EQ(document["b"], "1");
  EXPECT_EQ(document["c"], true);
  EXPECT_EQ(document["d"], "true");
  EXPECT_TRUE(document["e"].is_null());
  EXPECT_EQ(document["f"], 1.5);
  EXPECT_EQ(document["g"], "7d");
  EXPECT_EQ(document["h"], "two\nlines\n");
  EXPECT_EQ(document["i"], "inf");
  EXPECT_EQ(document["k"], "0x10");
  EXPECT_EQ(document["l"], Json::parse(R"(["x", 2])"));
  EXPECT_EQ(document["m"]["n"], 3);
  EXPECT_TRUE(document["o"].is_null());
}

TEST(ProvisionDocument, JsonAndYamlOfTheSameContentAreTheSame) {
  const std::string json = R"({"a": {"b": [1, "two", null, false]}, "c": "\ud83d\ude00\/"})";
  EXPECT_EQ(Good(json, "f.json"), Good("a:\n  b: [1, two, null, false]\nc: \"\xF0\x9F\x98\x80/\""));
  EXPECT_EQ(Good(json, "-"), Good(json, "f.json"));
}

TEST(ProvisionDocument, AKeyThatOccursTwiceIsRefusedInBothFormats) {
  EXPECT_NE(Bad("a: 1\nb:\n  c: 1\n  c: 2\n").find("line 4, column 3: the key \"c\" occurs twice"),
            std::string::npos);
  EXPECT_NE(Bad(R"({"b": {"c": 1, "c": 2}})", "f.json").find("the key \"c\" occurs twice"),
            std::string::npos);
  EXPECT_EQ(Good(R"({"b": {"c": 1}, "d": {"c": 2}})", "f.json")["d"]["c"], 2);
}

TEST(ProvisionDocument, AnErrorOfSyntaxNamesLineAndColumn) {
  EXPECT_TRUE(Bad("a: [1,\nb: ]]").starts_with("line ")) << Bad("a: [1,\nb: ]]");
  EXPECT_TRUE(Bad("a: {b: 1\n").starts_with("line "));
  EXPECT_EQ(Bad("{\"a\":\n 1,}", "f.json"), "line 2, column 4: this is not JSON");
  EXPECT_EQ(Bad("a: 1\nb: \xFF\n"), "line 2, column 4: this is not UTF-8");
  EXPECT_EQ(Bad("", "f.json"), "line 1, column 1: this is not JSON");
  EXPECT_EQ(Bad("{\"a\": 1e999}", "f.json"), "a number in it is too large");
}

TEST(ProvisionDocument, WhatIsNoSingleDocumentIsRefused) {
  EXPECT_NE(Bad("a: 1\n---\nb: 2\n").find("more than one YAML document"), std::string::npos);
  EXPECT_NE(Bad("? [a, b]\n: 1\n").find("a key must be a string"), std::string::npos);
  EXPECT_TRUE(Good("").is_null());
  EXPECT_TRUE(Good("# nothing\n").is_null());
}

TEST(ProvisionDocument, ASmallFileCannotAskForMuchMemory) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string last = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int k = 0; k < 10; ++k) bomb += (k == 0 ? "" : ", ") + last;
    bomb += "]\n";
  }
  EXPECT_NE(Bad(bomb).find("too many values"), std::string::npos);
  EXPECT_NE(Bad(std::string(5000, '['), "f.yaml"), "");
  EXPECT_NE(Bad(std::string(100'000, '['), "f.json"), "");
  EXPECT_NE(Bad(std::string(50, '[') + std::string(50, ']')).find("too deeply"), std::string::npos);
  EXPECT_NE(Bad("a: &a [*a]\n"), "");
  EXPECT_NE(Bad(std::string(kMaxDocumentBytes + 1, ' ')).find("10 MB"), std::string::npos);
}

}  // namespace
}  // namespace postbox::cli

#include "proto/rules/json_scan.h"

#include <gtest/gtest.h>

namespace postbox::json {
namespace {

using Path = std::vector<std::string>;

// The values at the paths, each as its own text; of one that is not there "-".
std::vector<std::string> Look(std::string_view text, const std::vector<Path>& wanted,
                              Found* found = nullptr) {
  Paths paths;
  for (const Path& path : wanted) paths.Add(path);
  std::vector<Value> values;
  const Found result = MemberSearch(paths, text, &values).Run();
  if (found != nullptr) *found = result;
  EXPECT_TRUE(result.valid || found != nullptr) << text;
  std::vector<std::string> texts;
  for (const Value& value : values) {
    texts.emplace_back(value.kind == Kind::kAbsent ? "-" : value.text);
  }
  return texts;
}

bool IsJson(std::string_view text) {
  Found found;
  Look(text, {{"a"}, {"b", "c"}}, &found);
  return found.valid;
}

using Texts = std::vector<std::string>;

TEST(JsonScanTest, AMemberIsItsOwnBytes) {
  EXPECT_EQ(Look(R"( { "a" : 1.50 , "b":"x\u0041" ,"c": [ 1, {"a": 2} ],"d":null } )",
                 {{"a"}, {"b"}, {"c"}, {"d"}, {"e"}}),
            (Texts{"1.50", R"("x\u0041")", R"([ 1, {"a": 2} ])", "null", "-"}));
  EXPECT_EQ(Look("{}", {{"a"}}), Texts{"-"});
}

TEST(JsonScanTest, WhatIsNotLookedForMayHoldWhatNoTextCan) {
  EXPECT_EQ(Look(R"({"x": "\u0000", "\u0000": 1, "\ud800": {"a": "\udc00"}, "a": 7})", {{"a"}}),
            Texts{"7"});
}

TEST(JsonScanTest, APathLeadsThroughObjects) {
  const std::vector<Path> paths = {{"a"}, {"a", "b"}, {"a", "b", "c"}, {"a", "x"}};
  EXPECT_EQ(Look(R"({"a": {"b": {"c": 1}, "d": 2}})", paths),
            (Texts{R"({"b": {"c": 1}, "d": 2})", R"({"c": 1})", "1", "-"}));
  EXPECT_EQ(Look(R"({"b": {"c": 1}})", paths), (Texts{"-", "-", "-", "-"}));
}

TEST(JsonScanTest, BelowNullEverythingIsNull) {
  Paths paths;
  paths.Add({"a", "b", "c"});
  std::vector<Value> values;
  MemberSearch(paths, R"({"a": null})", &values).Run();
  EXPECT_EQ(values[0].kind, Kind::kNull);
  EXPECT_EQ(values[0].names, 3u);
}

TEST(JsonScanTest, AParentThatIsNoObjectIsFound) {
  for (const auto& [text, kind] : {std::pair{R"({"a": {"b": "x"}})", Kind::kString},
                                   std::pair{R"({"a": {"b": [{"c": 1}]}})", Kind::kArray},
                                   std::pair{R"({"a": {"b": true}})", Kind::kBoolean}}) {
    Paths paths;
    paths.Add({"a", "b", "c"});
    std::vector<Value> values;
    MemberSearch(paths, text, &values).Run();
    EXPECT_EQ(values[0].kind, kind);
    EXPECT_EQ(values[0].names, 2u);
  }
}

TEST(JsonScanTest, OfSeveralMembersTheLastOneCounts) {
  EXPECT_EQ(Look(R"({"a": 1, "b": 2, "a": 3})", {{"a"}}), Texts{"3"});
  EXPECT_EQ(Look(R"({"a": {"b": 1}, "a": {"c": 2}})", {{"a", "b"}, {"a", "c"}}), (Texts{"-", "2"}));
  EXPECT_EQ(Look(R"({"a": {"b": 1}, "a": {}, "x": 1})", {{"a", "b"}}), Texts{"-"});
  EXPECT_EQ(Look(R"({"a": null, "a": {"c": 2}})", {{"a", "b"}, {"a", "c"}}), (Texts{"-", "2"}));
  EXPECT_EQ(Look(R"({"a": {"b": {"c": 1}}, "a": {"b": {"d": 1}}})", {{"a", "b", "c"}}), Texts{"-"});
}

TEST(JsonScanTest, ANameMayBeWrittenWithEscapes) {
  EXPECT_EQ(Look(R"({"n\u0061me": 1, "\u00e9": 2, "a\/b\n": 3})", {{"name"}, {"é"}, {"a/b\n"}}),
            (Texts{"1", "2", "3"}));
  EXPECT_EQ(Look(R"({"na": 1, "names": 2, "Name": 3, "": 4})", {{"name"}}), Texts{"-"});
}

TEST(JsonScanTest, ATextThatIsNoObjectSaysWhatItIs) {
  for (const auto& [text, kind] :
       {std::pair{"[1]", Kind::kArray}, std::pair{" \"x\" ", Kind::kString},
        std::pair{"12", Kind::kNumber}, std::pair{"null", Kind::kNull}}) {
    Found found;
    Look(text, {{"a"}}, &found);
    EXPECT_TRUE(found.valid) << text;
    EXPECT_EQ(found.kind, kind) << text;
  }
}

TEST(JsonScanTest, AllOfTheTextIsChecked) {
  for (const char* text :
       {"{\"a\": 1}", " [] ", "-0", "1E+5", "0.5e-0", "[[],{}]", "{\"b\":{\"c\":{}}}", "true"}) {
    EXPECT_TRUE(IsJson(text)) << text;
  }
  for (const char* text : {"",
                           " ",
                           "{",
                           "}",
                           "{\"a\"}",
                           "{\"a\":}",
                           "{\"a\": 1,}",
                           "{\"a\": 1 \"b\": 2}",
                           "{a: 1}",
                           "[1,]",
                           "[,1]",
                           "[1",
                           "[1}",
                           "{\"a\": 1]",
                           "01",
                           "1.",
                           ".5",
                           "+1",
                           "1e",
                           "1e+",
                           "--1",
                           "nul",
                           "nulll",
                           "True",
                           "\"a",
                           "\"\n\"",
                           "\"\\x\"",
                           "\"\\u12\"",
                           "\"\\u12g4\"",
                           "\"\\",
                           "1 2",
                           "{} x",
                           "{\"b\": {\"c\": 1}",
                           "{\"b\": {\"c\" 1}}",
                           "{\"a\": [}",
                           "{\"x\": [1}}"}) {
    EXPECT_FALSE(IsJson(text)) << text;
  }
}

TEST(JsonScanTest, DeepNestingTakesNoStack) {
  const std::size_t deep = 3'000'000;
  Found found;
  Look("{\"x\": " + std::string(deep, '[') + std::string(deep, ']') + "}", {{"a"}}, &found);
  EXPECT_TRUE(found.valid);
  EXPECT_EQ(found.deepest, deep + 1);
}

std::string Text(std::string_view inside, TextFlaw flaw = TextFlaw::kNone) {
  std::string out(inside.size(), '\0');
  const Decoded decoded = Decode(inside, out.data());
  EXPECT_EQ(decoded.flaw, flaw) << inside;
  out.resize(decoded.length);
  return out;
}

TEST(JsonScanTest, EscapesAreDecoded) {
  EXPECT_EQ(Text(R"(a\"\\\/\b\f\n\r\tz)"), "a\"\\/\b\f\n\r\tz");
  EXPECT_EQ(Text(R"(\u0041\u00e9\u20AC\ud83d\ude00)"), "Aé€😀");
  EXPECT_EQ(Text(R"(\u007f\u0080\u07ff\u0800\uffff)"), "\x7f\u0080\u07ff\u0800\uffff");
}

TEST(JsonScanTest, WhatNoTextCanHoldIsNamed) {
  Text(R"(a\u0000b)", TextFlaw::kNul);
  for (const char* lone : {R"(\ud800)", R"(\ud800x)", R"(\ud800\n)", R"(\udc00)", R"(\udc00\ud800)",
                           R"(\ud800\ud800)", R"(\ud800\u0041)"}) {
    Text(lone, TextFlaw::kSurrogate);
  }
}

TEST(JsonScanTest, ElementsOfAnArrayAreTakenOneByOne) {
  Scanner scanner(R"( 1 , [2, 3],"x" ])");
  std::string_view element;
  Texts elements;
  while (NextElement(&scanner, &element)) elements.emplace_back(element);
  EXPECT_EQ(elements, (Texts{"1", "[2, 3]", "\"x\""}));
}

TEST(JsonScanTest, MembersOfAnObjectAreTakenOneByOne) {
  Scanner scanner(R"( "a" : 1 , "a":{"b": [2]},"\u0063":"}" } )");
  Texts members;
  for (ObjectMember member; NextMember(&scanner, &member);) {
    members.push_back(std::string(member.name) + (member.escaped ? " escaped " : " ") +
                      std::string(member.value));
  }
  EXPECT_EQ(members, (Texts{"a 1", R"(a {"b": [2]})", R"(\u0063 escaped "}")"}));
  Scanner empty(" }");
  ObjectMember member;
  EXPECT_FALSE(NextMember(&empty, &member));
}

}  // namespace
}  // namespace postbox::json

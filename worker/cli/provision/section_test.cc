#include "worker/cli/provision/section.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace postbox::cli {
namespace {

TEST(ProvisionSection, TimesAreSecondsOrANumberWithAUnit) {
  EXPECT_EQ(SecondsOf(90), 90);
  EXPECT_EQ(SecondsOf("90s"), 90);
  EXPECT_EQ(SecondsOf("15m"), 900);
  EXPECT_EQ(SecondsOf("36h"), 129600);
  EXPECT_EQ(SecondsOf("7d"), 604800);
  for (const Json& bad :
       {Json("7"), Json("d"), Json(""), Json("-1s"), Json(-1), Json(1.5), Json("1.5h"), Json("1 d"),
        Json("7days"), Json("99999999999999999999s"), Json(UINT64_MAX), Json(true), Json()}) {
    EXPECT_FALSE(SecondsOf(bad)) << bad.dump();
  }
}

TEST(ProvisionSection, ATimeIsShownAsItIsWritten) {
  for (const char* text : {"7d", "36h", "600s", "90s", "0s", "31d", "60s"}) {
    EXPECT_EQ(DurationText(*SecondsOf(text)), text);
  }
}

TEST(ProvisionSection, AnUnknownKeyIsReportedWithTheNearestKnownOne) {
  const Json json = {{"name", "x"}, {"retension", "7d"}, {"zzz", 1}};
  Problems problems("f.yaml");
  Section section(json, "topics[0]", &problems);
  section.Text("name");
  section.Duration("retention", 0, 10);
  section.End();
  ASSERT_EQ(problems.lines().size(), 2U);
  EXPECT_EQ(
      problems.lines()[0],
      "f.yaml: topics[0]: unknown key \"retension\" (did you mean retention?); allowed are name, "
      "retention");
  EXPECT_EQ(problems.lines()[1],
            "f.yaml: topics[0]: unknown key \"zzz\"; allowed are name, retention");
}

TEST(ProvisionSection, TheNearestKeyIsFoundByDistanceAndByPart) {
  const std::vector<std::string> known = {"ack_deadline", "dead_letter", "retention",
                                          "retain_acked"};
  EXPECT_EQ(Nearest("ackDeadline", known), "ack_deadline");
  EXPECT_EQ(Nearest("deadletter", known), "dead_letter");
  EXPECT_EQ(Nearest("message_retention", known), "retention");
  EXPECT_EQ(Nearest("qqqq", known), "");
  EXPECT_EQ(Nearest(std::string(100'000, 'a'), known), "");
}

TEST(ProvisionSection, AWrongValueIsReportedWithItsPathAndWhatIsAllowed) {
  const Json json = Json::parse(
      R"({"text": 5, "truth": "yes", "time": "9d", "whole": 4, "word": "c", "list": "a",
          "map": {"a": 1}, "control": "a\u0007b", "lines": "a\nb", "none": null})");
  Problems problems("f.yaml");
  Section section(json, "s", &problems);
  EXPECT_FALSE(section.Text("text"));
  EXPECT_FALSE(section.Truth("truth"));
  EXPECT_FALSE(section.Duration("time", 600, 7 * 86400, "never"));
  EXPECT_FALSE(section.Whole("whole", 5, 100));
  EXPECT_FALSE(section.OneOf("word", {"a", "b"}));
  EXPECT_FALSE(section.Texts("list"));
  EXPECT_FALSE(section.TextMap("map"));
  EXPECT_FALSE(section.Text("control"));
  EXPECT_FALSE(section.Text("lines"));
  EXPECT_EQ(section.TextOfLines("lines"), "a\nb");
  EXPECT_FALSE(section.Text("none"));
  EXPECT_EQ(section.RequiredText("missing"), "");
  const std::vector<std::string> expected = {
      "f.yaml: s.text: this must be a string, and is a number; put it in quotes",
      "f.yaml: s.truth: true or false is needed here, and it is a string",
      "f.yaml: s.time: allowed is a time from 600s to 7d, like 90 (seconds), 90s, 15m, 36h or 7d, "
      "or "
      "never",
      "f.yaml: s.whole: allowed is a whole number from 5 to 100",
      "f.yaml: s.word: \"c\" is not allowed; allowed are a, b",
      "f.yaml: s.list: a list of strings is needed here, and it is a string",
      "f.yaml: s.map.a: this must be a string, and is a number; put it in quotes",
      "f.yaml: s.control: a control character is not allowed here",
      "f.yaml: s.lines: a control character is not allowed here",
      "f.yaml: s.none: this must be a string, and is nothing",
      "f.yaml: s.missing: this key is needed"};
  EXPECT_EQ(problems.lines(), expected);
}

TEST(ProvisionSection, NoControlCharacterOfAFileReachesTheTerminal) {
  const Json json = {{"labels", {{"a\x1b[2J", 1}}}};
  Problems problems("f.yaml");
  Section section(json, "", &problems);
  section.TextMap("labels");
  ASSERT_EQ(problems.lines().size(), 1U);
  EXPECT_EQ(problems.lines()[0].find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace postbox::cli

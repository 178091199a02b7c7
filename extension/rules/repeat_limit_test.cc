#include "extension/rules/repeat_limit.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace postbox {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class RepeatLimitTest : public ::testing::Test {
 protected:
  // Fails `times`, `apart` from each other, and takes what is written as "text (count)".
  void Fail(const std::string& subject, int times, milliseconds apart) {
    for (int i = 0; i < times; ++i, now_ += apart) {
      for (const RepeatLimit::Line& line : limit_.Due(now_)) Take(line);
      if (const auto line = limit_.Note(subject, subject, now_)) Take(*line);
    }
  }
  void Take(const RepeatLimit::Line& line) {
    const std::string count = line.Count();
    lines_.push_back(count.empty() ? line.text : line.text + " (" + count + ")");
  }

  RepeatLimit limit_;
  RepeatLimit::Clock::time_point now_ = RepeatLimit::Clock::now();
  std::vector<std::string> lines_;
};

TEST_F(RepeatLimitTest, AFailureThatGoesOnForAMinuteTakesThreeLinesWithTheirCount) {
  Fail("a", 600, milliseconds(100));
  EXPECT_EQ(lines_, (std::vector<std::string>{"a", "a (repeated 99 times in the last 10 s)",
                                              "a (repeated 200 times in the last 20 s)"}));
}

TEST_F(RepeatLimitTest, AnotherFirstPauseMakesTheNextOnesShorterToo) {
  limit_ = RepeatLimit(/*burst=*/1, milliseconds(500));
  Fail("a", 35, milliseconds(100));
  EXPECT_EQ(lines_, (std::vector<std::string>{"a", "a (repeated 4 times in the last 1 s)",
                                              "a (repeated 10 times in the last 1 s)"}));
}

TEST_F(RepeatLimitTest, AFailureThatGoesOnForADayTakesLinesInProportionToTheTime) {
  Fail("a", 86400, seconds(1));
  EXPECT_GT(lines_.size(), 140u);
  EXPECT_LT(lines_.size(), 160u);
}

TEST_F(RepeatLimitTest, OtherFailuresAreWrittenAtOnce) {
  for (int i = 0; i < 50; ++i) {
    Fail("a", 1, milliseconds(10));
    Fail("b", 1, milliseconds(10));
  }
  EXPECT_EQ(lines_, (std::vector<std::string>{"a", "b"}));
}

TEST_F(RepeatLimitTest, WhatWasCountedLastIsWrittenThoughNothingMoreComes) {
  Fail("a", 3, milliseconds(10));
  EXPECT_EQ(limit_.DueAt(), now_ - milliseconds(30) + RepeatLimit::kFirstPause);
  EXPECT_TRUE(limit_.Due(now_).empty());
  now_ += RepeatLimit::kFirstPause;
  for (const RepeatLimit::Line& line : limit_.Due(now_)) Take(line);
  EXPECT_EQ(lines_, (std::vector<std::string>{"a", "a (repeated 2 times in the last 10 s)"}));
  EXPECT_EQ(limit_.DueAt(), RepeatLimit::Clock::time_point::max());
}

TEST_F(RepeatLimitTest, AllThatWasCountedCanBeTaken) {
  Fail("a", 2, milliseconds(10));
  for (const RepeatLimit::Line& line : limit_.TakeAll(now_)) Take(line);
  EXPECT_EQ(lines_, (std::vector<std::string>{"a", "a (repeated 1 time in the last 1 s)"}));
  EXPECT_TRUE(limit_.TakeAll(now_).empty());
}

TEST_F(RepeatLimitTest, AFailureThatComesBackAfterSilenceIsNew) {
  Fail("a", 1, seconds(21));
  Fail("a", 1, seconds(1));
  EXPECT_EQ(lines_, (std::vector<std::string>{"a", "a"}));
}

TEST_F(RepeatLimitTest, OfTooManySubjectsTheQuietestIsForgotten) {
  const int count = static_cast<int>(RepeatLimit::kMaxSubjects) + 1;
  for (int i = 0; i < count; ++i) Fail("s" + std::to_string(i), 1, milliseconds(1));
  EXPECT_EQ(lines_.size(), static_cast<std::size_t>(count));
  Fail("s" + std::to_string(count - 1), 1, milliseconds(1));
  EXPECT_EQ(lines_.size(), static_cast<std::size_t>(count)) << "the last one is known";
  Fail("s0", 1, milliseconds(1));
  EXPECT_EQ(lines_.back(), "s0") << "the first one is not";
}

TEST_F(RepeatLimitTest, OfABurstEachLineIsWritten) {
  limit_ = RepeatLimit(3);
  Fail("a", 5, milliseconds(1));
  EXPECT_EQ(lines_, (std::vector<std::string>{"a", "a", "a"}));
  now_ += RepeatLimit::kFirstPause;
  for (const RepeatLimit::Line& line : limit_.Due(now_)) Take(line);
  EXPECT_EQ(lines_.back(), "a (repeated 2 times in the last 10 s)");
}

TEST_F(RepeatLimitTest, WhatHappensManyTimesAtOnceIsOneLine) {
  Take(*limit_.Note("a", "a", now_, 100));
  EXPECT_EQ(lines_.back(), "a (repeated 99 times in the last 1 s)");
  EXPECT_FALSE(limit_.Note("a", "a", now_, 10).has_value());
  Take(*limit_.Note("a", "a", now_ + RepeatLimit::kFirstPause, 5));
  EXPECT_EQ(lines_.back(), "a (repeated 15 times in the last 10 s)");
}

TEST(SubjectOfTest, TextsThatDifferInTheirNumbersOnlyAreOneSubject) {
  EXPECT_EQ(SubjectOf("locked by process 4711"), SubjectOf("locked by process 12"));
  EXPECT_NE(SubjectOf("locked by process 4711"), SubjectOf("locked by nobody"));
  EXPECT_EQ(SubjectOf("7 of 12"), "# of #");
  EXPECT_EQ(SubjectOf(std::string(1000, 'x')).size(), 200u);
}

}  // namespace
}  // namespace postbox

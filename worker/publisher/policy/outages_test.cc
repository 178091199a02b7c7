#include "worker/publisher/policy/outages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace postbox::publisher {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using Kind = Outages::Line::Kind;

class OutagesTest : public ::testing::Test {
 protected:
  void Fails(const std::string& publication, bool waits = true) {
    failing_.push_back({publication, waits, now_, now_, "no answer"});
  }
  // Nothing happens but the looks that are asked for; requests go on failing.
  void PassTime(milliseconds time) {
    const Moment end = After(now_, time);
    Look();
    while (now_ < end) {
      now_ = std::min(outages_.next_look(), end);
      for (Outages::Failing& one : failing_) one.next_try = now_;
      Look();
    }
  }
  void Look() {
    changes_ += outages_.Look(now_, failing_, 20s);
    const auto is_ours = [&](const std::string& publication) {
      return !others_.contains(publication);
    };
    if (std::optional<Outages::Line> line = outages_.TakeLine(is_ours, scale_)) {
      lines_.push_back(*std::move(line));
    }
  }
  std::vector<Kind> Kinds() const {
    std::vector<Kind> kinds;
    for (const auto& line : lines_) kinds.push_back(line.kind);
    return kinds;
  }

  Outages outages_;
  Moment now_ = 1'000'000'000;
  std::vector<Outages::Failing> failing_;
  std::set<std::string> others_;  // of which another worker writes
  TimeScale scale_;
  int changes_ = 0;
  std::vector<Outages::Line> lines_;
};

TEST_F(OutagesTest, ARequestThatFailsNowAndThenIsNoOutage) {
  Fails("videos");
  PassTime(400ms);
  failing_.clear();
  PassTime(1min);
  EXPECT_EQ(changes_, 0);
  EXPECT_TRUE(lines_.empty());
  EXPECT_TRUE(outages_.IsOver());
  EXPECT_EQ(outages_.next_look(), kNever);
}

TEST_F(OutagesTest, TheLogHasALineAtOnceOneAMinuteAndOneAtTheEnd) {
  Fails("videos");
  PassTime(500ms);
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kBegins));
  EXPECT_EQ(outages_.outages().size(), 1U);
  PassTime(2min);
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kBegins, Kind::kGoesOn, Kind::kGoesOn));
  failing_.clear();
  PassTime(2900ms);
  EXPECT_TRUE(outages_.outages().empty());
  EXPECT_FALSE(outages_.IsOver());
  PassTime(100ms);
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kBegins, Kind::kGoesOn, Kind::kGoesOn, Kind::kEnds));
  EXPECT_EQ(lines_.back().lasted, 120s) << "without the calm behind it";
  EXPECT_TRUE(outages_.IsOver());
  Fails("videos");
  PassTime(500ms);
  EXPECT_EQ(Kinds().back(), Kind::kBegins) << "the next one has a line at once";
}

TEST_F(OutagesTest, TheEndOfAnOutageThatOthersWroteAboutIsTheirs) {
  others_ = {"videos"};
  Fails("videos");
  PassTime(1s);
  failing_.clear();
  PassTime(10s);
  EXPECT_TRUE(lines_.empty());
  EXPECT_TRUE(outages_.IsOver());
}

TEST_F(OutagesTest, WhatFailsAgainBeforeItIsCalmIsTheSameOutage) {
  Fails("videos");
  PassTime(1s);
  const auto failing = std::exchange(failing_, {});
  PassTime(2s);
  failing_ = failing;
  PassTime(10s);
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kBegins));
  failing_.clear();
  PassTime(2900ms);
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kBegins)) << "the calm begins with the second end";
}

TEST_F(OutagesTest, ItLastsWhileWhatWasGivenUpIsClaimedAgain) {
  Fails("videos");
  PassTime(1s);
  failing_[0].waits = false;
  PassTime(2900ms);
  EXPECT_EQ(outages_.outages().size(), 1U);
  PassTime(200ms);
  EXPECT_TRUE(outages_.outages().empty()) << "nothing waits for the topic";
}

TEST_F(OutagesTest, APublicationWithoutEventsHasNoOutage) {
  Fails("idle", false);
  PassTime(1min);
  EXPECT_EQ(changes_, 0);
}

TEST_F(OutagesTest, HowATopicIsToWhichNothingWasSentForLongIsNotKnown) {
  Fails("videos");
  PassTime(1s);
  EXPECT_EQ(outages_.outages().size(), 1U);
  now_ = After(now_, 21s);
  Look();
  EXPECT_TRUE(outages_.outages().empty());
}

TEST_F(OutagesTest, ALineAtTheEndIsAskedForAndCountsFromTheFirstOutage) {
  Fails("videos");
  PassTime(1s);
  Fails("audit");
  PassTime(1min);
  failing_.erase(failing_.begin());
  PassTime(1min);
  failing_.clear();
  Look();
  EXPECT_EQ(outages_.next_look(), After(now_, 3s));
  PassTime(3s);
  EXPECT_EQ(Kinds().back(), Kind::kEnds);
  EXPECT_EQ(lines_.back().lasted, 121s);
}

TEST_F(OutagesTest, OnlyOneWorkerWritesAboutAPublication) {
  others_ = {"audit"};
  Fails("audit");
  Fails("videos");
  PassTime(1s);
  ASSERT_EQ(lines_.size(), 1U);
  EXPECT_THAT(lines_[0].publications, ElementsAre("videos"));
  EXPECT_EQ(lines_[0].first.publication, "videos");
  EXPECT_EQ(outages_.outages().size(), 2U) << "but both are shown";
}

TEST_F(OutagesTest, ALaterPublicationIsNamedInTheNextLine) {
  Fails("videos");
  PassTime(1s);
  Fails("audit");
  PassTime(1min);
  ASSERT_EQ(lines_.size(), 2U);
  EXPECT_THAT(lines_[1].publications, ElementsAre("audit", "videos"));
}

TEST_F(OutagesTest, LinesFollowTheScaleOfTime) {
  scale_ = {10};
  Fails("videos");
  PassTime(13s);
  EXPECT_EQ(lines_.size(), 3U);
}

}  // namespace
}  // namespace postbox::publisher

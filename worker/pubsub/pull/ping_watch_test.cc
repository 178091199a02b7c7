#include "worker/pubsub/pull/ping_watch.h"

#include <gtest/gtest.h>

namespace postbox::pubsub {
namespace {

using std::chrono::seconds;

class PingWatchTest : public ::testing::Test {
 protected:
  bool Stalled() {
    const auto at = watch_.StalledAt(reading_since_);
    return at && *at <= now_;
  }
  // A call of a server that answers pings, as it is when both pings at its beginning are answered.
  void OpenCallThatAnswers() {
    EXPECT_TRUE(watch_.Opened());
    watch_.Pinged(now_);
    EXPECT_TRUE(watch_.Responded(/*empty=*/true));
    watch_.Pinged(now_);
    EXPECT_FALSE(watch_.Responded(/*empty=*/true));
  }

  PingWatch watch_{seconds(15)};
  PingWatch::Clock::time_point now_{seconds(1000)};
  PingWatch::Clock::time_point reading_since_ = now_;
};

TEST_F(PingWatchTest, AStallWithinTheFirstIntervalIsNoticed) {
  OpenCallThatAnswers();
  now_ += seconds(30);
  watch_.Pinged(now_);
  now_ += seconds(14);
  EXPECT_FALSE(Stalled());
  now_ += seconds(1);
  EXPECT_TRUE(Stalled());
}

TEST_F(PingWatchTest, AServerThatAnswersNoPingsIsNeverStalled) {
  EXPECT_TRUE(watch_.Opened());
  watch_.Pinged(now_);
  EXPECT_TRUE(watch_.Responded(/*empty=*/true));  // for the stream was opened
  for (int i = 0; i < 100; ++i) {
    watch_.Pinged(now_);
    now_ += seconds(30);
    EXPECT_FALSE(Stalled());
    EXPECT_FALSE(watch_.Responded(/*empty=*/false));
  }
}

TEST_F(PingWatchTest, MessagesBetweenAPingAndItsAnswerDoNotHideIt) {
  watch_.Opened();
  watch_.Responded(/*empty=*/false);
  watch_.Pinged(now_);
  watch_.Responded(/*empty=*/false);
  watch_.Responded(/*empty=*/true);
  watch_.Pinged(now_);
  now_ += seconds(15);
  EXPECT_TRUE(Stalled());
}

TEST_F(PingWatchTest, AResponseWithoutMessagesThatAnswersNoPingHidesNoStall) {
  OpenCallThatAnswers();
  watch_.Pinged(now_);
  now_ += seconds(1);
  watch_.Responded(/*empty=*/true);  // about the subscription, and nothing comes any more
  now_ += seconds(29);
  EXPECT_FALSE(Stalled());
  watch_.Pinged(now_);
  now_ += seconds(15);
  EXPECT_TRUE(Stalled());
}

TEST_F(PingWatchTest, SilenceIsMeasuredFromTheFirstPingThatWasNotAnswered) {
  OpenCallThatAnswers();
  for (int i = 0; i < 3; ++i) {
    watch_.Pinged(now_);
    EXPECT_FALSE(Stalled());
    now_ += seconds(5);
  }
  EXPECT_TRUE(Stalled());
}

TEST_F(PingWatchTest, TheTimeInWhichNothingWasReadDoesNotCount) {
  OpenCallThatAnswers();
  watch_.Pinged(now_);
  now_ += seconds(60);
  reading_since_ = now_;
  EXPECT_FALSE(Stalled());
  now_ += seconds(15);
  EXPECT_TRUE(Stalled());
}

TEST_F(PingWatchTest, ThatTheServerAnswersPingsIsKnownInItsNextCall) {
  OpenCallThatAnswers();
  EXPECT_FALSE(watch_.Opened());
  watch_.Pinged(now_);
  now_ += seconds(15);
  EXPECT_TRUE(Stalled());
}

}  // namespace
}  // namespace postbox::pubsub

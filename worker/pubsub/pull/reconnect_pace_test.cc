#include "worker/pubsub/pull/reconnect_pace.h"

#include <gtest/gtest.h>

namespace postbox::pubsub {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class ReconnectPaceTest : public ::testing::Test {
 protected:
  // A call that answers, and ends so much later.
  milliseconds CallThatEnds(int code, milliseconds after) {
    pace_.Answered(now_);
    now_ += after;
    return pace_.Failed(code, now_);
  }

  ReconnectPace pace_{[] { return 1.0; }};
  ReconnectPace::Clock::time_point now_{seconds(1000)};
};

TEST_F(ReconnectPaceTest, TheDelaysGrowWhileNothingAnswers) {
  for (const int delay : {100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000}) {
    EXPECT_EQ(pace_.Failed(kUnavailable, now_), milliseconds(delay));
  }
}

TEST_F(ReconnectPaceTest, TheFirstResponseBeginsThemAgain) {
  for (int i = 0; i < 5; ++i) pace_.Failed(kUnavailable, now_);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(CallThatEnds(kUnavailable, milliseconds(1)), milliseconds(100));
  }
}

TEST_F(ReconnectPaceTest, NotAfterWhatComesAgainAsSoonAsTheStreamIsOpen) {
  for (const int code : {kInternal, kResourceExhausted}) {
    for (const int delay : {100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000}) {
      EXPECT_EQ(CallThatEnds(code, milliseconds(50)), milliseconds(delay)) << code;
    }
    EXPECT_EQ(CallThatEnds(kUnavailable, milliseconds(50)), milliseconds(10000));
  }
}

TEST_F(ReconnectPaceTest, ACallThatLastsForLongerThanTheLongestDelayBeginsThemAgain) {
  for (int i = 0; i < 8; ++i) CallThatEnds(kInternal, milliseconds(50));
  EXPECT_EQ(CallThatEnds(kInternal, seconds(10)), milliseconds(10000));
  EXPECT_EQ(CallThatEnds(kInternal, seconds(11)), milliseconds(100));
}

TEST_F(ReconnectPaceTest, AnotherErrorAfterItEndsIt) {
  for (int i = 0; i < 8; ++i) CallThatEnds(kInternal, milliseconds(50));
  CallThatEnds(kUnavailable, milliseconds(50));
  EXPECT_EQ(CallThatEnds(kUnavailable, milliseconds(50)), milliseconds(100));
}

}  // namespace
}  // namespace postbox::pubsub

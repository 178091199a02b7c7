#include "extension/rules/backoff.h"

#include <gtest/gtest.h>

#include <climits>

namespace postbox::pubsub {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(BackoffTest, DelaysGrowFromTheBaseToTheCap) {
  const BackoffPolicy policy{seconds(10), 2.0, seconds(600)};
  EXPECT_EQ(BackoffDelay(policy, 1, 1.0), seconds(10));
  EXPECT_EQ(BackoffDelay(policy, 2, 1.0), seconds(20));
  EXPECT_EQ(BackoffDelay(policy, 6, 1.0), seconds(320));
  EXPECT_EQ(BackoffDelay(policy, 7, 1.0), seconds(600));
  EXPECT_EQ(BackoffDelay(policy, INT_MAX, 1.0), seconds(600));
  EXPECT_EQ(BackoffDelay(policy, 0, 1.0), seconds(10));
  EXPECT_EQ(BackoffDelay(policy, INT_MIN, 1.0), seconds(10));
  EXPECT_EQ(BackoffDelay({seconds(10), 2.0, seconds(5)}, 1, 1.0), seconds(5));
}

TEST(BackoffTest, JitterTakesAtMostHalfAway) {
  const BackoffPolicy policy{milliseconds(100), 2.0, seconds(1)};
  EXPECT_EQ(BackoffDelay(policy, 1, 0.0), milliseconds(50));
  EXPECT_EQ(BackoffDelay(policy, 1, 0.5), milliseconds(75));
  for (int i = 0; i < 1000; ++i) {
    const double random = JitterRandom();
    ASSERT_GE(random, 0.0);
    ASSERT_LT(random, 1.0);
  }
}

TEST(BackoffTest, ACounterStartsAgainAfterSuccess) {
  Backoff backoff({milliseconds(100), 3.0, seconds(10)}, [] { return 1.0; });
  EXPECT_EQ(backoff.Next(), milliseconds(100));
  EXPECT_EQ(backoff.Next(), milliseconds(300));
  EXPECT_EQ(backoff.attempts(), 2);
  backoff.Reset();
  EXPECT_EQ(backoff.Next(), milliseconds(100));
}

}  // namespace
}  // namespace postbox::pubsub

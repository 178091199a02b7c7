#include "worker/puller/receive_lag.h"

#include <gtest/gtest.h>

namespace postbox::puller {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(ReceiveLagTest, NothingIsKnownWithoutMessages) {
  const ReceiveLag lag;
  const auto numbers = lag.Of(ReceiveLag::TimePoint{hours(1)});
  EXPECT_FALSE(numbers.lag_ms);
  EXPECT_FALSE(numbers.events_per_1000_s);
  EXPECT_FALSE(numbers.catch_up_per_1000);
  EXPECT_FALSE(lag.behind_at());
}

TEST(ReceiveLagTest, AMessageThatHasWaitedIsBehind) {
  ReceiveLag lag;
  ReceiveLag::TimePoint now{hours(1)};
  lag.Add(1, milliseconds(9999), now);
  EXPECT_FALSE(lag.behind_at());
  lag.Add(1, milliseconds(10001), now);
  ASSERT_TRUE(lag.behind_at());
  EXPECT_EQ(*lag.behind_at(), now);
  lag.Add(1, milliseconds(5), now + seconds(3));
  EXPECT_EQ(*lag.behind_at(), now);
}

TEST(ReceiveLagTest, TheRateAndTheDecreaseAreThoseOfTheLastMinute) {
  ReceiveLag lag;
  ReceiveLag::TimePoint now{hours(1)};
  // 100 messages a second, and each second the lag is 4 s less.
  for (int second = 0; second <= 200; ++second, now += seconds(1)) {
    lag.Add(100, seconds(1000 - 4 * second), now);
  }
  const auto numbers = lag.Of(now);
  EXPECT_EQ(numbers.lag_ms, 200'000);
  EXPECT_NEAR(static_cast<double>(*numbers.events_per_1000_s), 100'000, 5'000);
  EXPECT_NEAR(static_cast<double>(*numbers.catch_up_per_1000), 4000, 200);
}

TEST(ReceiveLagTest, ALagThatGrowsHasANegativeDecrease) {
  ReceiveLag lag;
  ReceiveLag::TimePoint now{hours(1)};
  for (int second = 0; second <= 30; ++second, now += seconds(1)) {
    lag.Add(1, seconds(20 + second), now);
  }
  EXPECT_LT(*lag.Of(now).catch_up_per_1000, 0);
}

TEST(ReceiveLagTest, WhatIsOlderThanAMinuteSaysNothingOfNow) {
  ReceiveLag lag;
  ReceiveLag::TimePoint now{hours(1)};
  lag.Add(1, seconds(20), now);
  lag.Add(1, seconds(20), now + seconds(5));
  const auto numbers = lag.Of(now + seconds(90));
  EXPECT_EQ(numbers.lag_ms, 20'000);
  EXPECT_FALSE(numbers.events_per_1000_s);
}

}  // namespace
}  // namespace postbox::puller

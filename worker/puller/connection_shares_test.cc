#include "worker/puller/connection_shares.h"

#include <gtest/gtest.h>

namespace postbox::puller {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using TimePoint = ConnectionShares::TimePoint;

constexpr TimePoint kNow{hours(1)};
constexpr TimePoint kNever = TimePoint::max();
constexpr auto kNeedTime = SubscriptionConnections::kNeedTime;

TEST(ConnectionSharesTest, TheFirstIsOpenedAtOnceAndAnotherOneWhenWorkHasWaitedThatNoneTakes) {
  ConnectionShares shares;
  SubscriptionConnections one(&shares);
  EXPECT_LE(one.NextOpen(kNever, false, kNow), kNow);
  one.Opened(kNow);
  EXPECT_EQ(one.NextOpen(kNever, false, kNow), kNever) << "there is no work";
  EXPECT_EQ(one.NextOpen(kNow + seconds(1), false, kNow), kNow + seconds(1)) << "there will be";
  EXPECT_GT(one.NextOpen(kNow, true, kNow), kNow) << "one is free for it";
  EXPECT_EQ(one.NextOpen(kNow, false, kNow), kNow + kNeedTime);
  EXPECT_EQ(one.NextOpen(kNever, false, kNow + milliseconds(30)), kNever) << "it was taken";
  const TimePoint later = kNow + milliseconds(40);
  EXPECT_EQ(one.NextOpen(kNow, false, later), later + kNeedTime);
  EXPECT_LE(one.NextOpen(kNow, false, later + kNeedTime), later + kNeedTime);
}

TEST(ConnectionSharesTest, WhatWasNotInUseAtTheSameTimeIsClosedButNotTheLast) {
  ConnectionShares shares;
  SubscriptionConnections one(&shares);
  TimePoint now = kNow;
  for (int i = 0; i < 3; ++i) one.Opened(now);
  EXPECT_FALSE(one.TooMany(0, now)) << "all have been needed";
  // Two at a time are in use now and then.
  for (int i = 0; i < 30; ++i) one.InUse(i % 10 == 0 ? 2 : 1, now += seconds(1));
  EXPECT_TRUE(one.TooMany(1, now));
  one.Closed();
  EXPECT_FALSE(one.TooMany(1, now));
  EXPECT_LE(one.NextLook(), now + SubscriptionConnections::kIdleTime);
  now += 2 * SubscriptionConnections::kIdleTime;
  EXPECT_TRUE(one.TooMany(0, now)) << "none has been in use";
  one.Closed();
  EXPECT_FALSE(one.TooMany(0, now));
  EXPECT_EQ(one.NextLook(), kNever);
}

TEST(ConnectionSharesTest, NoSecondOneIsOpenedWhileAnotherSubscriptionHasNone) {
  ConnectionShares shares;
  SubscriptionConnections one(&shares);
  one.Opened(kNow);
  one.NextOpen(kNow, false, kNow);
  const TimePoint later = kNow + kNeedTime;
  {
    const SubscriptionConnections other(&shares);
    EXPECT_GT(one.NextOpen(kNow, false, later), later);
    EXPECT_FALSE(shares.OneEach(later)) << "it has not tried";
  }
  EXPECT_LE(one.NextOpen(kNow, false, later), later) << "it is gone";
}

TEST(ConnectionSharesTest, OneThatIsRefusedItsFirstMakesTheOthersCloseAllButOne) {
  ConnectionShares shares;
  SubscriptionConnections one(&shares);
  one.Opened(kNow);
  one.Opened(kNow);
  SubscriptionConnections other(&shares);
  EXPECT_GT(other.Refused(kNow), milliseconds(0));
  EXPECT_TRUE(one.MustClose(kNow));
  one.Closed();
  EXPECT_FALSE(one.MustClose(kNow)) << "it keeps the last";
  one.Opened(kNow);
  other.Refused(kNow);
  other.Opened(kNow);
  EXPECT_FALSE(one.MustClose(kNow));
  EXPECT_TRUE(shares.MayHaveMore(kNow));
}

TEST(ConnectionSharesTest, ASecondOneThatIsRefusedMakesAllCloseAndWait) {
  ConnectionShares shares;
  SubscriptionConnections one(&shares);
  SubscriptionConnections other(&shares);
  one.Opened(kNow);
  other.Opened(kNow);
  other.Opened(kNow);
  one.Refused(kNow);
  EXPECT_TRUE(other.MustClose(kNow));
  EXPECT_FALSE(shares.MayHaveMore(kNow));
  TimePoint later = kNow + ConnectionShares::kPause.base;
  EXPECT_FALSE(other.MustClose(later));
  EXPECT_TRUE(shares.MayHaveMore(later));
  for (int i = 0; i < 10; ++i) {
    other.Refused(later);
    later += ConnectionShares::kPause.cap;
  }
  other.Refused(later);
  EXPECT_FALSE(shares.MayHaveMore(later + ConnectionShares::kPause.cap / 3)) << "pauses grow";
  later += ConnectionShares::kPause.cap + ConnectionShares::kForget;
  other.Refused(later);
  EXPECT_TRUE(shares.MayHaveMore(later + ConnectionShares::kPause.base)) << "and are forgotten";
}

TEST(ConnectionSharesTest, ASubscriptionThatEndsWhileItIsRefusedHoldsUpNoOther) {
  ConnectionShares shares;
  SubscriptionConnections one(&shares);
  one.Opened(kNow);
  {
    SubscriptionConnections other(&shares);
    other.Refused(kNow);
    EXPECT_TRUE(shares.OneEach(kNow));
  }
  EXPECT_FALSE(shares.OneEach(kNow));
  {
    SubscriptionConnections other(&shares);
    other.Opened(kNow);
    other.Closed();
    other.Refused(kNow);
  }
  EXPECT_TRUE(shares.MayHaveMore(kNow));
  EXPECT_FALSE(shares.OneEach(kNow));
}

}  // namespace
}  // namespace postbox::puller

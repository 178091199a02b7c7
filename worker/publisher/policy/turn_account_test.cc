#include "worker/publisher/policy/turn_account.h"

#include <gtest/gtest.h>

#include "worker/publisher/policy/adaptive_size.h"
#include "worker/publisher/policy/turn_limit.h"

namespace postbox::publisher {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

constexpr milliseconds kLongest = 15s;

// A worker that does nothing but turns of one publication, with a clock that stands still
// otherwise.
class TurnAccountTest : public ::testing::Test {
 protected:
  bool Turn(milliseconds takes, std::size_t events = 0, bool nothing_published = false,
            milliseconds limit = 1s) {
    const Moment begin = now_;
    now_ = After(now_, takes);
    return account_.Charge({begin, now_, events, nothing_published, limit}, longest_, scale_);
  }
  milliseconds Rest() const { return std::max(Between(now_, account_.rests_until()), 0ms); }
  milliseconds Wait() const { return std::max(Between(now_, account_.waits_until()), 0ms); }

  TurnAccount account_;
  Moment now_ = 1'000'000'000;
  milliseconds longest_ = kLongest;
  TimeScale scale_;
};

TEST_F(TurnAccountTest, WhatEventsNeedCostsNothing) {
  EXPECT_FALSE(Turn(1000ms, 10'000));
  EXPECT_FALSE(Turn(104ms, 1'000));
  EXPECT_EQ(Rest(), 0ms);
  EXPECT_EQ(Wait(), 0ms);
}

TEST_F(TurnAccountTest, AShortDebtIsPaidWhileOthersPublish) {
  EXPECT_FALSE(Turn(50ms, 100));
  EXPECT_EQ(Rest(), 9 * 40ms);
  EXPECT_EQ(Wait(), 0ms);
}

TEST_F(TurnAccountTest, ShortDebtsOfSeveralTurnsAddUp) {
  for (int i = 0; i < 4; ++i) Turn(50ms);
  EXPECT_EQ(Rest(), 4 * 9 * 50ms);
  Turn(6ms);
  EXPECT_EQ(Rest(), 4 * 9 * 50ms + 9 * 6ms) << "a short turn does not end the rest";
  EXPECT_EQ(Wait(), 0ms);
  account_.Forgive();
  EXPECT_EQ(Rest(), 0ms);
}

TEST_F(TurnAccountTest, ATurnForNothingButFailuresCostsAllOfItsTime) {
  Turn(4ms);
  EXPECT_EQ(Rest(), 0ms);
  Turn(4ms, 0, true);
  EXPECT_EQ(Rest(), 9 * 4ms);
}

TEST_F(TurnAccountTest, TheFirstHiccupIsForgiven) {
  EXPECT_FALSE(Turn(600ms));
  EXPECT_EQ(Wait(), 0ms);
  EXPECT_TRUE(Turn(600ms)) << "but not the second";
  EXPECT_EQ(Wait(), 9 * 500ms);
}

TEST_F(TurnAccountTest, ATurnThatFailedIsNoHiccup) {
  const Moment begin = now_;
  now_ = After(now_, 1s);
  EXPECT_TRUE(account_.Charge({begin, now_, 0, false, 1s, true}, longest_, scale_));
  EXPECT_EQ(Wait(), 9 * 900ms);
}

TEST_F(TurnAccountTest, WhereNoOtherPublicationIsThereOnlyAFailureCosts) {
  const Moment begin = now_;
  now_ = After(now_, 1s);
  TurnAccount::Turn turn{begin, now_, 0, false, 1s};
  turn.alone = true;
  EXPECT_FALSE(account_.Charge(turn, longest_, scale_));
  EXPECT_EQ(Rest(), 0ms);
  turn.failed = true;
  EXPECT_TRUE(account_.Charge(turn, longest_, scale_));
  EXPECT_EQ(Wait(), 9 * 900ms) << "which holds when another one comes";
}

TEST_F(TurnAccountTest, TheAllowanceComesBackWithTime) {
  EXPECT_FALSE(Turn(600ms));
  now_ = After(now_, 9 * 500ms);
  EXPECT_FALSE(Turn(600ms));
}

TEST_F(TurnAccountTest, InTheLongRunItHasATenthOfTheTime) {
  const Moment begin = now_;
  milliseconds used = 0ms;
  while (Between(begin, now_) < 1h) {
    Turn(1s);
    used += 1s;
    now_ = std::max(now_, account_.waits_until());
  }
  // Each turn has kLongTurn for nothing.
  EXPECT_NEAR(static_cast<double>(used.count()), 3'600'000.0 * 1000 / (1000 + 9 * 900), 2000);
}

TEST_F(TurnAccountTest, ATurnCostsNoMoreThanItsLimit) {
  EXPECT_TRUE(Turn(60s, 0, false, 1s)) << "the machine was stopped meanwhile";
  EXPECT_EQ(Wait(), 9 * (900ms - 500ms));
}

TEST_F(TurnAccountTest, NoWaitIsLongerThanALeaseAllows) {
  longest_ = 2s;
  for (int i = 0; i < 5; ++i) Turn(1s);
  EXPECT_EQ(Wait(), 2s);
  EXPECT_EQ(Rest(), 2s);
}

TEST_F(TurnAccountTest, AWaitCanBeEnded) {
  Turn(1s);
  Turn(1s);
  account_.EndWaitAt(After(now_, 100ms));
  EXPECT_EQ(Wait(), 100ms);
  account_.EndWaitAt(After(now_, 10s));
  EXPECT_EQ(Wait(), 100ms) << "and not be made longer";
  now_ = After(now_, 100ms);
  Turn(150ms);
  EXPECT_EQ(Wait(), 9 * 50ms) << "what was left of the debt counts no more";
}

TEST_F(TurnAccountTest, FollowsTheScaleOfTime) {
  scale_ = {10};
  EXPECT_TRUE(Turn(100ms)) << "60 ms are forgiven: kLongTurn and the allowance";
  EXPECT_EQ(Wait(), 9 * 40ms);
}

TEST(TurnLimitTest, DoublesWithEachCancelledTurnAndFurtherWhereNoOtherPublicationIsHeldUp) {
  TurnLimit limit;
  EXPECT_EQ(limit.value(true), 1s);
  const std::vector<std::pair<milliseconds, milliseconds>> expected = {
      {2s, 2s}, {4s, 4s}, {8s, 8s}, {8s, 16s}, {8s, 32s}, {8s, 64s}, {8s, 64s}};
  for (const auto& [shared, alone] : expected) {
    limit.Cancelled();
    EXPECT_EQ(limit.value(true), shared);
    EXPECT_EQ(limit.value(false), alone);
  }
  for (int i = 0; i < 6; ++i) limit.Ended();
  EXPECT_EQ(limit.value(true), 1s);
  limit.Ended();
  limit.Cancelled();
  EXPECT_EQ(limit.value(true), 2s);
}

TEST(AdaptiveSizeTest, HalvesAfterASlowStepAndDoublesAfterAQuickOne) {
  AdaptiveSize size(100, 1000);
  EXPECT_EQ(size.value(), 1000U);
  size.Shrink();
  EXPECT_EQ(size.value(), 500U);
  size.Shrink(300);
  EXPECT_EQ(size.value(), 150U) << "of what the step was";
  size.Shrink();
  EXPECT_EQ(size.value(), 100U);
  EXPECT_TRUE(size.IsLeast());
  size.Grow(99);
  EXPECT_EQ(size.value(), 100U) << "a smaller step says nothing";
  size.Grow(100);
  EXPECT_EQ(size.value(), 200U);
  for (int i = 0; i < 10; ++i) size.Grow();
  EXPECT_EQ(size.value(), 1000U);
  size.Shrink();
  size.Shrink(10'000);
  EXPECT_EQ(size.value(), 500U) << "never larger than before";
}

}  // namespace
}  // namespace postbox::publisher

#include "worker/puller/applier_schedule.h"

#include <gtest/gtest.h>

namespace postbox::puller {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using Step = ApplierSchedule::Step;
using Session = ApplierSchedule::Session;
using Due = ApplierSchedule::Due;

constexpr auto kNothingDue = ApplierSchedule::TimePoint::max();
constexpr Due kIdle{kNothingDue, kNothingDue, kNothingDue};

class ApplierScheduleTest : public ::testing::Test {
 protected:
  void Connect(Session* session) {
    schedule_.ConnectDone(session, /*connected=*/true, now_);
    EXPECT_TRUE(session->connected);
  }
  Due Work() const { return {now_, kNothingDue, kNothingDue}; }
  ApplierSchedule::Plan Next(Session* session, const Due& due) {
    return schedule_.Next(session, due, now_);
  }

  ApplierSchedule::TimePoint now_{hours(1)};
  ConnectionShares shares_;
  ApplyGate gate_{2};
  ApplierSchedule schedule_{&shares_, &gate_};
  Session one_;
  Session other_;
};

TEST_F(ApplierScheduleTest, OneAfterTheOtherConnectsAndASecondOnlyForWorkThatNoneTakes) {
  EXPECT_EQ(Next(&one_, kIdle).step, Step::kConnect);
  EXPECT_EQ(Next(&other_, kIdle).step, Step::kWait) << "it is not its turn";
  Connect(&one_);
  EXPECT_EQ(Next(&other_, kIdle).step, Step::kWait) << "there is no work";
  EXPECT_EQ(Next(&one_, Work()).step, Step::kApply);
  EXPECT_EQ(schedule_.busy(), 1);
  // Two may not run before the pace allows it.
  const auto ticket = gate_.Enter(now_);
  auto plan = Next(&other_, Work());
  EXPECT_EQ(plan.step, Step::kWait);
  EXPECT_EQ(plan.until, gate_.NextOpening(now_));
  // What takes long is not counted.
  now_ += ApplyGate::kLong;
  plan = Next(&other_, Work());
  EXPECT_EQ(plan.step, Step::kWait);
  EXPECT_EQ(plan.until, now_ + SubscriptionConnections::kNeedTime);
  now_ = plan.until;
  EXPECT_EQ(Next(&other_, Work()).step, Step::kConnect);
  gate_.Leave(ticket);
}

TEST_F(ApplierScheduleTest, ParkedKeysAndBatchesTakeTurns) {
  Next(&one_, kIdle);
  Connect(&one_);
  Due both = Work();
  both.parked = now_;
  std::string steps;
  for (int i = 0; i < 4; ++i) {
    const Step step = Next(&one_, both).step;
    steps += step == Step::kApply ? 'a' : (step == Step::kRetryParked ? 'p' : '?');
    EXPECT_EQ(schedule_.busy(), 1);
    schedule_.Done(one_, step);
  }
  EXPECT_EQ(steps, "apap");
  Due parked = kIdle;
  parked.parked = now_;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Next(&one_, parked).step, Step::kRetryParked) << "there is no batch";
    schedule_.Done(one_, Step::kRetryParked);
  }
  parked.parked = now_ + seconds(1);
  EXPECT_EQ(Next(&one_, parked).until, now_ + seconds(1));
}

TEST_F(ApplierScheduleTest, WhileAParkedKeyIsRetriedAnotherOneConnectsForABatch) {
  Next(&one_, kIdle);
  Connect(&one_);
  Due parked = kIdle;
  parked.parked = now_;
  EXPECT_EQ(Next(&one_, parked).step, Step::kRetryParked);
  EXPECT_EQ(Next(&other_, Work()).step, Step::kWait);
  now_ += SubscriptionConnections::kNeedTime;
  EXPECT_EQ(Next(&other_, Work()).step, Step::kConnect);
}

TEST_F(ApplierScheduleTest, AnApplierThatIsFreeKeepsOthersFromConnecting) {
  Connect(&one_);
  gate_.Enter(now_ - ApplyGate::kLong);  // so there is room for another one
  EXPECT_EQ(Next(&one_, kIdle).step, Step::kWait);
  Next(&other_, Work());
  now_ += seconds(1);
  EXPECT_EQ(Next(&other_, Work()).step, Step::kWait);
  schedule_.Done(one_, Step::kWait);
  Next(&other_, Work());
  now_ += seconds(1);
  EXPECT_EQ(Next(&other_, Work()).step, Step::kConnect);
}

TEST_F(ApplierScheduleTest, AConnectionOverWhichAReportIsStoredIsNotCountedOn) {
  Connect(&one_);
  EXPECT_EQ(Next(&one_, {kNothingDue, now_, kNothingDue}).step, Step::kReport);
  EXPECT_EQ(Next(&other_, Work()).until, now_ + SubscriptionConnections::kNeedTime);
  now_ += SubscriptionConnections::kNeedTime;
  EXPECT_EQ(Next(&other_, Work()).step, Step::kConnect);
  schedule_.Done(one_, Step::kReport);
  Connect(&other_);
  schedule_.Lost(&other_);
  EXPECT_EQ(Next(&other_, Work()).until, gate_.NextOpening(now_)) << "the first will take the work";
}

TEST_F(ApplierScheduleTest, AConnectionThatIsRefusedIsTriedLaterByTheNext) {
  EXPECT_EQ(Next(&one_, kIdle).step, Step::kConnect);
  const auto delay = schedule_.ConnectDone(&one_, /*connected=*/false, now_);
  ASSERT_TRUE(delay);
  const auto plan = Next(&other_, kIdle);
  EXPECT_EQ(plan.step, Step::kWait);
  EXPECT_EQ(plan.until, now_ + *delay);
  schedule_.Leave(other_);
  now_ += *delay;
  EXPECT_EQ(Next(&one_, kIdle).step, Step::kConnect) << "the turn of one that has left is free";
}

TEST_F(ApplierScheduleTest, AReportComesBeforeABatchAndWaitsForTheTimeThatComesFirst) {
  Connect(&one_);
  EXPECT_EQ(Next(&one_, {now_, now_, kNothingDue}).step, Step::kReport);
  schedule_.Done(one_, Step::kReport);
  EXPECT_EQ(Next(&one_, {now_ + seconds(3), now_ + seconds(2), now_ + seconds(1)}).until,
            now_ + seconds(1));
  EXPECT_EQ(Next(&one_, {now_ + seconds(3), now_ + seconds(2), kNothingDue}).until,
            now_ + seconds(2));
  EXPECT_EQ(Next(&one_, {now_ + seconds(1), now_ + seconds(2), kNothingDue}).until,
            now_ + seconds(1));
  EXPECT_EQ(Next(&one_, kIdle).until, now_ + minutes(1));
}

TEST_F(ApplierScheduleTest, AClosedGateIsWaitedFor) {
  Connect(&one_);
  const auto ticket = gate_.Enter(now_);
  const auto plan = Next(&one_, Work());
  EXPECT_EQ(plan.step, Step::kWait);
  EXPECT_EQ(plan.until, now_ + ApplyGate::kLong);
  gate_.Leave(ticket);
  EXPECT_EQ(Next(&one_, Work()).step, Step::kApply);
}

TEST_F(ApplierScheduleTest, WhatIsNotNeededIsClosedAndWhatAnotherSubscriptionNeedsAtOnce) {
  Connect(&one_);
  Connect(&other_);
  now_ += SubscriptionConnections::kIdleTime;
  EXPECT_EQ(Next(&one_, kIdle).step, Step::kWait) << "both were needed";
  now_ += SubscriptionConnections::kIdleTime;
  EXPECT_EQ(Next(&one_, kIdle).step, Step::kDisconnect);
  EXPECT_FALSE(one_.connected);
  EXPECT_EQ(schedule_.connections(), 1);
  Connect(&one_);
  SubscriptionConnections needs(&shares_);
  needs.Refused(now_);
  EXPECT_EQ(Next(&one_, Work()).step, Step::kDisconnect) << "whatever work there is";
  EXPECT_EQ(Next(&other_, Work()).step, Step::kApply) << "the last one stays";
}

TEST_F(ApplierScheduleTest, OneThatHasLostItsConnectionConnectsAgain) {
  schedule_.Join();
  Connect(&one_);
  schedule_.Lost(&one_);
  EXPECT_EQ(schedule_.connections(), 0);
  EXPECT_EQ(Next(&one_, kIdle).step, Step::kConnect);
  schedule_.Leave(one_);
  EXPECT_EQ(schedule_.running(), 0);
}

}  // namespace
}  // namespace postbox::puller

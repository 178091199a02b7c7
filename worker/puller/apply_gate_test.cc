#include "worker/puller/apply_gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace postbox::puller {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

class ApplyGateTest : public ::testing::Test {
 protected:
  // Commits until the pace tries two transactions.
  void UntilTrial() {
    for (bool trial = false; !trial;) {
      auto ticket = gate_.Enter(now_);
      trial = gate_.Open(now_);
      gate_.Committed(ticket, 100, now_ += milliseconds(1));
      gate_.Leave(ticket);
    }
  }
  ApplyGate gate_{4};
  ApplyGate::TimePoint now_ = Clock::now();
};

TEST_F(ApplyGateTest, LetsOneInAtFirst) {
  EXPECT_TRUE(gate_.Open(now_));
  auto one = gate_.Enter(now_);
  EXPECT_FALSE(gate_.Open(now_));
  gate_.Leave(one);
  EXPECT_TRUE(gate_.Open(now_));
}

TEST_F(ApplyGateTest, DoesNotCountWhatTakesLong) {
  gate_.Enter(now_);
  EXPECT_EQ(gate_.NextOpening(now_), now_ + ApplyGate::kLong);
  now_ += ApplyGate::kLong;
  EXPECT_TRUE(gate_.Open(now_));
  gate_.Enter(now_);
  EXPECT_FALSE(gate_.Open(now_));
}

TEST_F(ApplyGateTest, ATransactionThatRanAloneHasNoConflict) {
  auto one = gate_.Enter(now_);
  EXPECT_FALSE(gate_.Conflicted(one, now_));
  EXPECT_EQ(gate_.conflicts(now_), 0);
}

TEST_F(ApplyGateTest, CountsTheConflictsOfAMinute) {
  auto one = gate_.Enter(now_);
  gate_.Enter(now_);
  EXPECT_TRUE(gate_.Conflicted(one, now_));
  EXPECT_TRUE(gate_.Conflicted(one, now_ + seconds(30)));
  EXPECT_EQ(gate_.conflicts(now_ + seconds(59)), 2);
  EXPECT_EQ(gate_.conflicts(now_ + seconds(60)), 1);
  EXPECT_EQ(gate_.conflicts(now_ + seconds(90)), 0);
}

TEST_F(ApplyGateTest, CountsLongerAfterAConflict) {
  auto one = gate_.Enter(now_);
  auto two = gate_.Enter(now_);
  gate_.Conflicted(one, now_);
  gate_.Leave(one);
  gate_.Leave(two);
  gate_.Enter(now_ += milliseconds(1));
  EXPECT_FALSE(gate_.Open(now_ + ApplyGate::kLongAfterConflict - milliseconds(1)));
  EXPECT_TRUE(gate_.Open(now_ + ApplyGate::kLongAfterConflict));
}

TEST_F(ApplyGateTest, LimitsTheTimeOfATransactionInATrialOnly) {
  auto one = gate_.Enter(now_);
  EXPECT_FALSE(gate_.time_limit());
  gate_.Leave(one);
  UntilTrial();
  one = gate_.Enter(now_);
  EXPECT_FALSE(gate_.time_limit()) << "it is alone";
  auto two = gate_.Enter(now_);
  EXPECT_EQ(gate_.time_limit(), milliseconds(3) + ApplyGate::kTrialTime);  // they took 1 ms
  gate_.Conflicted(two, now_);
  EXPECT_FALSE(gate_.time_limit());
}

TEST_F(ApplyGateTest, ABatchOfShortTransactionsCounts) {
  auto one = gate_.Enter(now_);
  for (int i = 0; i < 10; ++i) gate_.Committed(one, 100, now_ += milliseconds(100));
  EXPECT_FALSE(gate_.Open(now_));
}

TEST_F(ApplyGateTest, LongTransactionsCountAfterAConflict) {
  auto one = gate_.Enter(now_);
  gate_.Committed(one, 100, now_ += seconds(5));
  auto two = gate_.Enter(now_);
  ASSERT_TRUE(gate_.Conflicted(two, now_));
  gate_.Leave(two);
  EXPECT_FALSE(gate_.Open(now_ + seconds(14)));
  EXPECT_TRUE(gate_.Open(now_ + seconds(15)));
}

TEST_F(ApplyGateTest, ATurnComesWhenTheOthersHaveLeft) {
  now_ = Clock::now() + seconds(3600);  // so that those who are in count for long
  auto one = gate_.Enter(now_);
  auto two = gate_.Enter(now_);
  ASSERT_TRUE(gate_.Conflicted(two, now_));
  std::atomic<bool> left = false;
  bool after = false;
  std::thread waits([&] {
    EXPECT_TRUE(gate_.AwaitTurn(two));
    after = left;
  });
  // Neither is counted then; only a turn closes the gate.
  while (gate_.Open(now_ + seconds(60))) std::this_thread::yield();
  left = true;
  gate_.Leave(one);
  waits.join();
  EXPECT_TRUE(after);
  EXPECT_FALSE(gate_.Conflicted(two, now_)) << "it is alone now";
}

TEST_F(ApplyGateTest, NobodyBeginsBeforeATurn) {
  now_ = Clock::now() + seconds(3600);
  auto one = gate_.Enter(now_);
  auto two = gate_.Enter(now_);
  gate_.Conflicted(two, now_);
  std::thread waits([&] { EXPECT_TRUE(gate_.AwaitTurn(two)); });
  // `one` is not counted any more; only the turn of `two` closes the gate.
  while (gate_.Open(now_ + seconds(60))) std::this_thread::yield();
  gate_.Leave(one);
  waits.join();
  gate_.Leave(two);
  EXPECT_TRUE(gate_.Open(now_));
}

TEST_F(ApplyGateTest, TwoThatWaitHaveTheirTurnsOneAfterTheOther) {
  now_ = Clock::now() + seconds(3600);
  auto one = gate_.Enter(now_);
  auto two = gate_.Enter(now_);
  gate_.Conflicted(one, now_);
  gate_.Conflicted(two, now_);
  std::atomic<int> at_once = 0;
  const auto turn = [&](ApplyGate::Ticket ticket) {
    EXPECT_TRUE(gate_.AwaitTurn(ticket));
    EXPECT_EQ(++at_once, 1);
    --at_once;
    gate_.Leave(ticket);
  };
  std::thread first(turn, one);
  std::thread second(turn, two);
  first.join();
  second.join();
}

TEST_F(ApplyGateTest, StopEndsTheWait) {
  now_ = Clock::now() + seconds(3600);
  gate_.Enter(now_);
  auto two = gate_.Enter(now_);
  std::thread waits([&] { EXPECT_FALSE(gate_.AwaitTurn(two)); });
  gate_.Stop();
  waits.join();
}

}  // namespace
}  // namespace postbox::puller

#include "worker/puller/work_queue.h"

#include <gtest/gtest.h>

#include <thread>

namespace postbox::puller {
namespace {

using std::chrono::seconds;

class WorkQueueTest : public ::testing::Test {
 protected:
  static SubscriptionConfig Config() {
    SubscriptionConfig config;
    config.name = "test";
    return config;
  }

  ConnectionShares shares_;
  ApplyGate gate_{1};
  ConsumerHealth health_{{}};
  PullStatus status_;
  ParkedRetry parked_{std::nullopt, ""};
  WorkQueue queue_{Config(), &shares_, &gate_, &health_, &status_, &parked_, [] {}};
  DatabaseInboxClient inbox_{"", "test", InvalidOid, InvalidOid, {}};
  PacedInbox paced_{"test", &inbox_, &gate_};
  WorkQueue::Applier applier_{&inbox_, &paced_};
};

TEST_F(WorkQueueTest, WhatHasNoConnectionIsNotWaitedForAndTheAppliersLeave) {
  queue_.Join();
  std::vector<Delivery> deliveries(1);
  deliveries[0].message.handle = 7;
  queue_.Push(std::move(deliveries));
  std::thread thread([this] {
    while (const auto task = queue_.Next(&applier_, 10)) {
      EXPECT_EQ(task->step, WorkQueue::Step::kConnect);
      queue_.ConnectDone(&applier_, /*connected=*/false, "refused");
    }
  });
  const auto begin = WorkQueue::Clock::now();
  queue_.EndBy(begin + seconds(60));
  queue_.ApplyHeld();
  EXPECT_LT(WorkQueue::Clock::now() - begin, seconds(30));
  EXPECT_TRUE(queue_.AwaitNoneBusy(WorkQueue::Clock::now()));
  EXPECT_TRUE(queue_.AwaitAllLeft(WorkQueue::Clock::now() + seconds(30)));
  thread.join();
  EXPECT_EQ(queue_.Drain(), std::vector<uint64_t>{7});
}

TEST_F(WorkQueueTest, WhatIsHeldIsWaitedForUntilTheEndComesForward) {
  queue_.ConnectDone(&applier_, /*connected=*/true, "");
  std::vector<Delivery> deliveries(1);
  queue_.Push(std::move(deliveries));
  const auto begin = WorkQueue::Clock::now();
  queue_.EndBy(begin + seconds(60));
  std::thread thread([this] { queue_.ApplyHeld(); });
  queue_.EndBy(begin + seconds(1));
  thread.join();
  EXPECT_LT(WorkQueue::Clock::now() - begin, seconds(30));
}

}  // namespace
}  // namespace postbox::puller

#include "worker/publisher/delivery/standby_queue_logic.h"

#include <gtest/gtest.h>

#include "worker/pubsub/publish/outgoing_message.h"

namespace postbox::publisher {
namespace {

using Messages = StandbyQueue::Messages;

constexpr std::int64_t kSecond = 1'000'000;

TEST(StandbyQueue, LetsThroughWhatIsConfirmedAndKeepsTheOrder) {
  pubsub::OutgoingMessage a, b, c, d;
  StandbyQueue queue;
  queue.Add("one", 100, 0, {&a, &b});
  queue.Add("two", 200, 0, {&c});
  queue.Add("one", 300, 0, {&d});
  EXPECT_EQ(queue.TakeSafe(99), Messages());
  EXPECT_EQ(queue.TakeSafe(200), (Messages{&a, &b, &c}));
  EXPECT_FALSE(queue.empty());
  EXPECT_EQ(queue.TakeSafe(300), (Messages{&d}));
  EXPECT_TRUE(queue.empty());
}

TEST(StandbyQueue, NothingOvertakesWhatCameBefore) {
  pubsub::OutgoingMessage a, b;
  StandbyQueue queue;
  queue.Add("one", 200, 0, {&a});
  queue.Add("one", 100, 0, {&b});
  EXPECT_EQ(queue.TakeSafe(150), Messages());
  EXPECT_EQ(queue.TakeSafe(200), (Messages{&a, &b}));
}

TEST(StandbyQueue, IsStalledWhenTheFirstBatchHasWaitedForLong) {
  pubsub::OutgoingMessage a, b;
  StandbyQueue queue;
  EXPECT_FALSE(queue.Stalled(10 * kSecond, kSecond));
  queue.Add("one", 100, 5 * kSecond, {&a});
  queue.Add("two", 200, 6 * kSecond, {&b});
  EXPECT_FALSE(queue.Stalled(6 * kSecond - 1, kSecond));
  EXPECT_TRUE(queue.Stalled(6 * kSecond, kSecond));
  EXPECT_EQ(queue.TakeSafe(100), (Messages{&a}));
  EXPECT_FALSE(queue.Stalled(6 * kSecond, kSecond));
}

TEST(StandbyQueue, RemembersWhatItWaitsForWhenTheEventsWereGivenBack) {
  pubsub::OutgoingMessage a, b;
  StandbyQueue queue;
  queue.Add("one", 100, 0, {&a});
  queue.Add("two", 200, kSecond, {&b});
  EXPECT_EQ(queue.GiveBack(9 * kSecond, 10 * kSecond), Messages());
  EXPECT_EQ(queue.GiveBack(10 * kSecond, 10 * kSecond), (Messages{&a, &b}));
  EXPECT_EQ(queue.GiveBack(11 * kSecond, 10 * kSecond), Messages());
  EXPECT_TRUE(queue.Stalled(11 * kSecond, kSecond));
  EXPECT_EQ(queue.TakeSafe(200), Messages());
  EXPECT_TRUE(queue.empty());
}

TEST(StandbyQueue, ShowsSinceWhenEachPublicationWaitsAndForWhat) {
  StandbyQueue queue;
  queue.Add("one", 100, 1, {});
  queue.Add("two", 200, 2, {});
  queue.Add("one", 300, 3, {});
  const std::vector<StandbyQueue::Waiting> expected{{"one", 100, 1}, {"two", 200, 2}};
  EXPECT_EQ(queue.Overview(), expected);
}

TEST(StandbyQueue, LooksSoonAtFirstAndThenLessOften) {
  StandbyQueue queue;
  queue.Add("one", 100, 0, {});
  EXPECT_EQ(queue.NextLook(0), 1000);
  EXPECT_EQ(queue.NextLook(40'000), 50'000);
  EXPECT_EQ(queue.NextLook(10 * kSecond), 10 * kSecond + 100'000);
}

}  // namespace
}  // namespace postbox::publisher

#include "worker/puller/key_queues.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "worker/puller/kept_text.h"

namespace postbox::puller {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr size_t kNoLimit = 1 << 30;

class KeyQueuesTest : public ::testing::Test {
 protected:
  void Push(uint64_t handle, const std::string& key, size_t bytes = 1, bool suspect = false) {
    Delivery delivery;
    delivery.message.handle = handle;
    delivery.message.ordering_key = Kept(key);
    delivery.suspect = suspect;
    delivery.event.payload = Kept(std::string(bytes, 'x'));
    queues_.Push(std::move(delivery), now_);
  }
  std::vector<uint64_t> Take(size_t messages = kNoLimit, size_t bytes = kNoLimit) {
    batch_ = queues_.Take(messages, bytes);
    std::vector<uint64_t> handles;
    for (const auto& delivery : batch_) handles.push_back(delivery.message.handle);
    return handles;
  }
  std::vector<Delivery> Unsettled(std::initializer_list<size_t> positions) {
    std::vector<Delivery> unsettled;
    for (size_t i : positions) unsettled.push_back(std::move(batch_[i]));
    return unsettled;
  }

  KeyQueues queues_;
  KeyQueues::TimePoint now_{std::chrono::hours(1)};
  std::vector<Delivery> batch_;
};

TEST_F(KeyQueuesTest, AKeyLeavesInOrderAndTogether) {
  Push(1, "a");
  Push(2, "b");
  Push(3, "a");
  EXPECT_EQ(queues_.ready(), 3u);
  EXPECT_THAT(Take(), ElementsAre(1, 3, 2));
  EXPECT_EQ(queues_.ready(), 0u);
}

TEST_F(KeyQueuesTest, NothingOfAKeyLeavesWhileEarlierMessagesOfItAreBeingApplied) {
  Push(1, "a");
  EXPECT_THAT(Take(), ElementsAre(1));
  Push(2, "a");
  Push(3, "b");
  EXPECT_THAT(Take(), ElementsAre(3));
  EXPECT_THAT(Take(), IsEmpty());
  queues_.Done("ka", now_);
  EXPECT_THAT(Take(), ElementsAre(2));
  queues_.Done("ka", now_);
  queues_.Done("kb", now_);
  EXPECT_TRUE(queues_.empty());
}

TEST_F(KeyQueuesTest, MessagesWithoutAKeyAreIndependent) {
  Push(1, "");
  EXPECT_THAT(Take(), ElementsAre(1));
  Push(2, "");
  EXPECT_THAT(Take(), ElementsAre(2));
}

TEST_F(KeyQueuesTest, ABatchKeepsItsLimitsAndTheRestOfAKeyWaitsForIt) {
  for (uint64_t i = 1; i <= 5; ++i) Push(i, "a");
  Push(6, "b");
  EXPECT_THAT(Take(3), ElementsAre(1, 2, 3));
  EXPECT_THAT(Take(), ElementsAre(6));
  queues_.Done("ka", now_);
  EXPECT_EQ(queues_.ready(), 2u);
  EXPECT_THAT(Take(), ElementsAre(4, 5));
}

TEST_F(KeyQueuesTest, ABatchIsBoundedByBytesButNeverEmpty) {
  Push(1, "", 1000);
  Push(2, "", 60);
  Push(3, "", 50);
  EXPECT_THAT(Take(kNoLimit, 100), ElementsAre(1));
  EXPECT_THAT(Take(kNoLimit, 100), ElementsAre(2));
  EXPECT_EQ(queues_.ready(), 1u);
  EXPECT_THAT(Take(kNoLimit, 100), ElementsAre(3));
}

TEST_F(KeyQueuesTest, AFailureSuspendsItsKeyAndTakesWhatFollowsOfTheKeyWithIt) {
  for (uint64_t i = 1; i <= 3; ++i) Push(i, "a");
  Push(4, "b");
  EXPECT_THAT(Take(), ElementsAre(1, 2, 3, 4));
  // 1 is applied and 2 has failed. 3 must not overtake 2.
  queues_.Fail("ka", Unsettled({1, 2}), now_ + milliseconds(100));
  Push(5, "a");
  EXPECT_THAT(Take(), IsEmpty());
  EXPECT_EQ(*queues_.NextRetry(), now_ + milliseconds(100));
  EXPECT_THAT(queues_.TakeSuspended(now_ + milliseconds(99)), IsEmpty());
  EXPECT_THAT(queues_.TakeSuspended(now_ + milliseconds(100)), ElementsAre(2, 3, 5));
  EXPECT_FALSE(queues_.NextRetry());
  // Redelivered.
  Push(6, "a");
  EXPECT_THAT(Take(), ElementsAre(6));
}

TEST_F(KeyQueuesTest, ASuspectLeavesAloneAndOnlyItsKeyWaitsForIt) {
  Push(1, "a");
  Push(2, "a", 1, /*suspect=*/true);
  Push(3, "a");
  Push(4, "b");
  EXPECT_FALSE(queues_.suspect_since());
  EXPECT_THAT(Take(), ElementsAre(1, 4));
  queues_.Done("ka", now_);
  EXPECT_EQ(queues_.ready(), 0u);
  EXPECT_THAT(Take(), IsEmpty());
  EXPECT_EQ(queues_.suspect_since(), now_);
  batch_ = queues_.TakeSuspect();
  EXPECT_EQ(batch_[0].message.handle, 2u);
  EXPECT_THAT(batch_, ::testing::SizeIs(1));
  EXPECT_FALSE(queues_.suspect_since());
  queues_.Done("ka", now_);
  EXPECT_THAT(Take(), ElementsAre(3));
}

TEST_F(KeyQueuesTest, WhatIsPutBackIsTheFirstOfItsKeyAgain) {
  for (uint64_t i = 1; i <= 3; ++i) Push(i, "a");
  EXPECT_THAT(Take(2), ElementsAre(1, 2));
  queues_.PutBack("ka", Unsettled({1}));
  EXPECT_THAT(Take(), IsEmpty());
  queues_.Done("ka", now_);
  EXPECT_THAT(Take(), ElementsAre(2, 3));
}

TEST_F(KeyQueuesTest, ReadySinceIsTheTimeOfTheLongestWait) {
  EXPECT_FALSE(queues_.ready_since());
  Push(1, "a");
  auto first = now_;
  now_ += milliseconds(3);
  Push(2, "b");
  EXPECT_EQ(queues_.ready_since(), first);
  Take(1);
  EXPECT_EQ(queues_.ready_since(), now_);
}

TEST_F(KeyQueuesTest, DrainHandsOutAllButWhatIsBeingApplied) {
  Push(1, "a");
  Push(2, "b");
  Take();
  queues_.Fail("kb", Unsettled({1}), now_ + milliseconds(1));
  Push(3, "a");
  Push(4, "c");
  EXPECT_THAT(queues_.Drain(), UnorderedElementsAre(2, 3, 4));
  EXPECT_FALSE(queues_.empty());
  queues_.Done("ka", now_);
  EXPECT_TRUE(queues_.empty());
}

TEST_F(KeyQueuesTest, AMessageHasNothingOfAnEarlierOne) {
  Push(1, "a", 1, /*suspect=*/true);
  batch_ = {};
  std::vector<Delivery> failed;
  failed.push_back(std::move(queues_.TakeSuspect()[0]));
  failed[0].given_up = EventFailure{"22000", "error", 3};
  queues_.PutBack("ka", std::move(failed));
  queues_.Done("ka", now_);
  queues_.TakeSuspect();
  queues_.Done("ka", now_);
  Push(2, "a");
  EXPECT_THAT(Take(), ElementsAre(2));
  EXPECT_FALSE(batch_[0].suspect);
  EXPECT_FALSE(batch_[0].given_up);
}

TEST_F(KeyQueuesTest, WhatWaitsIsCountedByTypeWithTheVersionsOfOneAggregate) {
  const auto push = [&](const std::string& key, const char* type, const char* aggregate,
                        int64_t version, int second) {
    Delivery delivery;
    delivery.message.ordering_key = Kept(key);
    delivery.message.publish_time = std::chrono::system_clock::time_point(seconds(second));
    delivery.event.event_type = type;
    delivery.event.aggregate_id = aggregate;
    delivery.event.version = version;
    queues_.Push(std::move(delivery), now_);
  };
  push("a", "t", "a", 5, 30);
  push("a", "t", "a", 6, 20);
  push("a", "u", "a", 9, 40);
  push("bucket", "t", "x", 1, 50);
  push("bucket", "t", "y", 1000, 50);
  push("hostile", "u", "h", std::numeric_limits<int64_t>::min(), 60);
  push("hostile", "u", "h", std::numeric_limits<int64_t>::max(), 60);
  const auto waiting = queues_.Waiting();
  ASSERT_EQ(waiting.size(), 2u);
  EXPECT_EQ(waiting.at("t").events, 4);
  EXPECT_EQ(waiting.at("t").versions, 2);
  EXPECT_EQ(waiting.at("t").oldest.time_since_epoch(), seconds(20));
  EXPECT_EQ(waiting.at("u").events, 3);
  EXPECT_EQ(waiting.at("u").versions, std::numeric_limits<int64_t>::max());
}

TEST_F(KeyQueuesTest, AHeldQueueIsGivenBackOnlyIfTheServiceDoesNotCountDeliveries) {
  for (const int attempt : {0, 1}) {
    Delivery delivery;
    delivery.message.ordering_key = "k";
    delivery.message.delivery_attempt = attempt;
    queues_.Push(std::move(delivery), now_);
    Take();
    queues_.Hold("kk", Unsettled({0}));
    EXPECT_EQ(queues_.held_messages(), 1u);
    EXPECT_EQ(queues_.GiveBack("kk", now_), attempt == 0);
    EXPECT_EQ(queues_.held_messages(), static_cast<size_t>(attempt));
    queues_.Drain();
  }
}

}  // namespace
}  // namespace postbox::puller

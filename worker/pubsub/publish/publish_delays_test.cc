#include "worker/pubsub/publish/publish_delays.h"

#include <gtest/gtest.h>

#include <chrono>

#include "worker/pubsub/publish/publish_topic.h"

namespace postbox::pubsub {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct Delayed {
  Delayed() {
    busy->pace.emplace();
    busy->pace->Refused(1);
    slow->pace = busy->pace;
  }

  const PublishDelays::TimePoint now{seconds(1000)};
  PublishTopic topic{"one"};
  PublishTopic other{"other"};
  OutgoingQueue* const busy = topic.FindQueue("busy");
  OutgoingQueue* const slow = other.FindQueue("slow");
  PublishDelays delays;
};

TEST(PublishDelays, ARequestIsBusyUntilItsBackoffIsOver) {
  Delayed all;
  EXPECT_FALSE(all.delays.NextTime());
  OutgoingBatch first;
  OutgoingBatch second;
  second.attempts = 1;
  all.delays.RetryAt(all.now + seconds(2), all.busy, second);
  all.delays.RetryAt(all.now + seconds(1), all.busy, first);
  EXPECT_EQ(all.busy->busy, 2);
  EXPECT_EQ(all.delays.NextTime(), all.now + seconds(1));
  EXPECT_TRUE(all.delays.TakeDue(all.now).empty());
  const auto due = all.delays.TakeDue(all.now + seconds(2));
  ASSERT_EQ(due.size(), 2u);
  EXPECT_EQ(due[1].batch.attempts, 1) << "the earliest first";
  EXPECT_EQ(all.busy->busy, 0);
}

TEST(PublishDelays, TheRequestsOfATopicCanBeTakenBeforeTheirTime) {
  Delayed all;
  all.delays.RetryAt(all.now + seconds(1), all.busy, {});
  all.delays.RetryAt(all.now + seconds(2), all.slow, {});
  ASSERT_EQ(all.delays.TakeOf(&all.other).size(), 1u);
  EXPECT_EQ(all.delays.TakeAll().size(), 1u);
  EXPECT_EQ(all.slow->busy + all.busy->busy, 0);
}

TEST(PublishDelays, AQueuePausesOnceForAsLongAsItsPaceSays) {
  Delayed all;
  const auto end = all.now + all.busy->pace->pause();
  all.delays.Pause(all.busy, all.now);
  all.delays.Pause(all.busy, all.now + milliseconds(1));
  all.delays.Pause(all.slow, all.now + milliseconds(1));
  EXPECT_TRUE(all.busy->paused);
  EXPECT_EQ(all.delays.NextTime(), end);
  EXPECT_EQ(all.delays.EndPauses(end).size(), 1u);
  EXPECT_FALSE(all.busy->paused);
  EXPECT_TRUE(all.slow->paused);
}

}  // namespace
}  // namespace postbox::pubsub

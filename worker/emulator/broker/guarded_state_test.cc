// What holds while the state is reached, and what happens at the end of a change.
#include "worker/emulator/broker/guarded_state.h"

#include <gtest/gtest.h>

#include <memory>

#include "worker/emulator/broker/test_names.h"

namespace postbox::emulator {
namespace {

// Reads the state when it is woken, as a stream does. That would wait forever with the mutex held.
class ReadingListener final : public Listener {
 public:
  explicit ReadingListener(GuardedState* state) : state_(state) {}
  void Wake() override {
    const BrokerAccess access(state_);
    leased_when_woken = access->resources.feeds().at(kSub)->state.counters().leased;
  }
  int64_t leased_when_woken = -1;

 private:
  GuardedState* const state_;
};

class GuardedStateTest : public ::testing::Test {
 protected:
  GuardedStateTest() {
    google::pubsub::v1::Topic topic;
    topic.set_name(kTopic);
    google::pubsub::v1::Subscription subscription;
    subscription.set_name(kSub);
    subscription.set_topic(kTopic);
    subscription.set_ack_deadline_seconds(10);
    subscription.mutable_message_retention_duration()->set_seconds(600);
    const BrokerChange change(&state_);
    change->resources.AddTopic(topic);
    change->resources.AddFeed(subscription);
  }
  void Publish() {
    BrokerChange change(&state_);
    TopicState* topic = change->resources.FindTopic(kTopic);
    change->delivery.Enqueue(topic, {MakeStoredMessage({})})->due = true;
    change->delivery.DeliverDue(topic, change.wakes());
  }

  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
  GuardedState state_{[this] { return now_; }, BrokerOptions{}};
};

TEST_F(GuardedStateTest, ListenersAreWokenWhenTheMutexIsFreeAgain) {
  const auto listener = std::make_shared<ReadingListener>(&state_);
  {
    const FeedChange feed(&state_, kSub);
    ASSERT_TRUE(feed.status().ok());
    feed.feed()->pulls.push_back(listener);
  }
  EXPECT_EQ(listener->leased_when_woken, -1) << "there is no message yet";
  Publish();
  EXPECT_EQ(listener->leased_when_woken, 0);
}

TEST_F(GuardedStateTest, AChangeOfASubscriptionFirstEndsItsLeasesThatAreOver) {
  Publish();
  {
    const FeedChange feed(&state_, kSub);
    EXPECT_EQ(feed->Pull(1, feed.now()).size(), 1u);
  }
  now_ += absl::Seconds(10);
  const FeedChange feed(&state_, kSub);
  EXPECT_EQ(feed->counters().expired, 1);
  EXPECT_EQ(feed->Pull(1, feed.now()).size(), 1u);
}

TEST_F(GuardedStateTest, ASubscriptionThatDoesNotExistIsNotFound) {
  const FeedChange feed(&state_, "projects/p/subscriptions/none");
  EXPECT_EQ(feed.status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace postbox::emulator

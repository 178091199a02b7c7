#include "worker/pubsub/publish/topic_turns.h"

#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <string>

namespace postbox::pubsub {
namespace {

using std::chrono::seconds;

struct Turns {
  OutgoingQueue* Add(const char* topic, const char* key, bool urgent = false) {
    OutgoingMessage* message = &messages.emplace_back();
    message->urgent = urgent;
    OutgoingQueue* queue = turns.Find(topic)->FindQueue(key);
    ++queue->outstanding;
    queue->Add(message);
    turns.MarkReady(queue);
    return queue;
  }
  // The keys whose turn it is, one after the other; none of them is sent.
  std::string Keys() {
    std::string keys;
    while (const OutgoingQueue* queue = turns.Next(&sent, now)) keys += queue->key;
    return keys;
  }

  const TopicTurns::TimePoint now{seconds(1000)};
  std::deque<OutgoingMessage> messages;
  TopicTurns turns;
  SentRequests sent{{.channels = 1,
                     .streams_per_channel = 10,
                     .least_requests = 10,
                     .attempt_timeout = seconds(10)}};
};

TEST(TopicTurns, TopicsTakeTurnsAndUrgentQueuesHaveEveryOtherOneOfTheirTopic) {
  Turns all;
  for (const char* const key : {"a", "b", "c"}) all.Add("first", key);
  all.Add("second", "x");
  for (const char* const key : {"u", "v"}) all.Add("first", key, /*urgent=*/true);
  all.Add("second", "y");
  EXPECT_EQ(all.Keys(), "uxayvbc");
  EXPECT_TRUE(all.turns.ready().empty());
}

TEST(TopicTurns, ATopicThatIsDownWaitsForItsProbeAndHoldsUpNoOther) {
  Turns all;
  TopicHealth& health = all.Add("down", "a")->topic->health;
  all.Add("other", "x");
  EXPECT_FALSE(all.turns.NextProbe(all.now));
  for (int failure = 0; failure < TopicHealth::kFailuresOfOutage; ++failure) {
    health.Failed(all.now, seconds(60), 1.0);
  }
  EXPECT_EQ(all.turns.NextProbe(all.now), health.next_probe());
  EXPECT_EQ(all.Keys(), "x");
  EXPECT_FALSE(all.turns.NextProbe(health.next_probe())) << "it is its turn";
  EXPECT_EQ(all.turns.Next(&all.sent, health.next_probe())->key, "a");
}

TEST(TopicTurns, WhatIsRemovedHasNoTurnAndAQueueWithoutMessagesIsErased) {
  Turns all;
  OutgoingQueue* const kept = all.Add("topic", "a");
  all.Add("topic", "b")->outstanding = 0;
  PublishTopic* const topic = kept->topic;
  all.turns.Remove(topic);
  EXPECT_EQ(all.Keys(), "");
  EXPECT_FALSE(kept->ready);
  EXPECT_EQ(topic->queues.size(), 1u);
}

}  // namespace
}  // namespace postbox::pubsub

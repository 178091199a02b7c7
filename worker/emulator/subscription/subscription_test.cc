// The state machine of deliveries. The test sets the clock.
#include "worker/emulator/subscription/subscription.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace postbox::emulator {
namespace {

namespace pb = google::pubsub::v1;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class SubscriptionTest : public ::testing::Test {
 protected:
  SubscriptionTest() {
    config_.set_name("projects/p/subscriptions/sub");
    config_.set_topic("projects/p/topics/topic");
    config_.set_ack_deadline_seconds(10);
    config_.mutable_message_retention_duration()->set_seconds(600);
  }

  Subscription& sub() {
    if (sub_ == nullptr) {
      sub_ = std::make_unique<Subscription>(config_, 7, deliver_twice_,
                                            [this](const std::string&) { return dlq_exists_; });
    }
    return *sub_;
  }

  StoredMessagePtr Make(const std::string& data, const std::string& key = "") {
    pb::PubsubMessage proto;
    proto.set_data(data);
    proto.set_ordering_key(key);
    auto message = MakeStoredMessage(proto);
    Stamp(++sequence_, "id", now_, message.get());
    return message;
  }
  void Publish(const std::string& data, const std::string& key = "") { sub().Add(Make(data, key)); }

  void Advance(absl::Duration duration) {
    now_ += duration;
    sub().Tick(now_);
  }

  static std::vector<std::string> Data(const std::vector<LeasedMessage>& deliveries) {
    std::vector<std::string> data;
    for (const LeasedMessage& delivery : deliveries)
      data.push_back(delivery.message->Parse().data());
    return data;
  }
  static std::string Id(const LeasedMessage& delivery) { return FormatAckId(delivery.ack_id); }

  std::vector<LeasedMessage> Pull(int most = 100) { return sub().Pull(most, now_); }
  std::vector<LeasedMessage> Take(StreamId id) { return sub().Take(id, now_); }
  AckOutcome Ack(const LeasedMessage& delivery) { return sub().Acknowledge({Id(delivery)}); }
  AckOutcome Modify(const LeasedMessage& delivery, int seconds) {
    return sub().ModifyAckDeadline({{Id(delivery), seconds}}, now_);
  }
  AckOutcome Nack(const LeasedMessage& delivery) { return Modify(delivery, 0); }

  pb::Subscription config_;
  bool deliver_twice_ = false;
  bool dlq_exists_ = true;
  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
  uint64_t sequence_ = 0;
  std::unique_ptr<Subscription> sub_;
};

TEST_F(SubscriptionTest, AnAckedMessageNeverComesAgain) {
  Publish("a");
  const auto got = Pull();
  ASSERT_THAT(Data(got), ElementsAre("a"));
  EXPECT_EQ(got[0].delivery_attempt, 0);
  Ack(got[0]);
  Advance(absl::Hours(1));
  EXPECT_THAT(Pull(), IsEmpty());
  EXPECT_EQ(sub().counters().backlog, 0);
}

TEST_F(SubscriptionTest, AMessageComesAgainWithANewAckIdWhenItsDeadlineIsOver) {
  Publish("a");
  const auto first = Pull();
  Advance(absl::Milliseconds(9999));
  EXPECT_THAT(Pull(), IsEmpty());
  EXPECT_EQ(sub().next_tick(), now_ + absl::Milliseconds(1));
  Advance(absl::Milliseconds(1));
  const auto second = Pull();
  ASSERT_THAT(Data(second), ElementsAre("a"));
  EXPECT_NE(Id(first[0]), Id(second[0]));
  EXPECT_EQ(sub().counters().expired, 1);
  EXPECT_EQ(sub().counters().redelivered, 1);
}

TEST_F(SubscriptionTest, ALateAckCountsUntilTheMessageIsDeliveredAgain) {
  Publish("a");
  Publish("b");
  const auto first = Pull();
  Advance(absl::Seconds(10));
  Ack(first[0]);
  const auto second = Pull();
  ASSERT_THAT(Data(second), ElementsAre("b"));
  Ack(first[1]);  // of the delivery before the current one
  EXPECT_EQ(sub().counters().leased, 1);
}

TEST_F(SubscriptionTest, AModifiedDeadlineReplacesTheOldOne) {
  Publish("a");
  const auto got = Pull();
  Advance(absl::Seconds(9));
  EXPECT_THAT(Modify(got[0], 60).done, SizeIs(1));
  Advance(absl::Seconds(59));
  EXPECT_THAT(Pull(), IsEmpty());
  Advance(absl::Seconds(1));
  EXPECT_THAT(Pull(), SizeIs(1));
}

TEST_F(SubscriptionTest, ANackWithoutRetryPolicyRedeliversAtOnce) {
  Publish("a");
  Nack(Pull()[0]);
  EXPECT_THAT(Data(Pull()), ElementsAre("a"));
  EXPECT_EQ(sub().counters().nacked, 1);
}

TEST_F(SubscriptionTest, TheRetryPolicyDoublesTheDelayUpToItsMaximum) {
  config_.mutable_retry_policy()->mutable_minimum_backoff()->set_seconds(10);
  config_.mutable_retry_policy()->mutable_maximum_backoff()->set_seconds(25);
  Publish("a");
  for (const int seconds : {10, 20, 25, 25}) {
    const auto got = Pull();
    ASSERT_THAT(got, SizeIs(1));
    Nack(got[0]);
    Advance(absl::Seconds(seconds) - absl::Milliseconds(1));
    EXPECT_THAT(Pull(), IsEmpty());
    Advance(absl::Milliseconds(1));
  }
  EXPECT_THAT(Pull(), SizeIs(1));
}

TEST_F(SubscriptionTest, AFullStreamGetsNothingUntilItAcks) {
  for (const char* data : {"a", "b", "c"}) Publish(data);
  const auto stream = sub().OpenStream({2, 0}, absl::Seconds(60));
  const auto got = Take(stream);
  ASSERT_THAT(Data(got), ElementsAre("a", "b"));
  EXPECT_FALSE(sub().HasWork(stream));
  EXPECT_THAT(Take(stream), IsEmpty());
  Ack(got[1]);
  EXPECT_TRUE(sub().HasWork(stream));
  EXPECT_THAT(Data(Take(stream)), ElementsAre("c"));
}

TEST_F(SubscriptionTest, AStreamIsLimitedByBytesButASingleLargeMessagePasses) {
  Publish(std::string(100, 'a'));
  Publish(std::string(1000, 'b'));
  Publish("c");
  const auto stream = sub().OpenStream({0, 150}, absl::Seconds(60));
  const auto first = Take(stream);
  ASSERT_THAT(first, SizeIs(1));
  Ack(first[0]);
  const auto second = Take(stream);
  ASSERT_THAT(second, SizeIs(1));
  EXPECT_EQ(second[0].message->Parse().data().size(), 1000u);
  EXPECT_FALSE(sub().HasWork(stream));
  Ack(second[0]);
  EXPECT_THAT(Data(Take(stream)), ElementsAre("c"));
}

TEST_F(SubscriptionTest, AResponseOfAStreamIsLimitedInBytes) {
  for (int i = 0; i < 3; ++i) Publish(std::string(400'000, 'x'));
  const auto stream = sub().OpenStream({}, absl::Seconds(60));
  EXPECT_THAT(Take(stream), SizeIs(2));
  EXPECT_THAT(Take(stream), SizeIs(1));
}

TEST_F(SubscriptionTest, TheStreamsDeadlineCountsAndNotTheSubscriptions) {
  Publish("a");
  const auto stream = sub().OpenStream({}, absl::Seconds(60));
  ASSERT_THAT(Take(stream), SizeIs(1));
  Advance(absl::Seconds(59));
  EXPECT_THAT(Take(stream), IsEmpty());
  Advance(absl::Seconds(1));
  ASSERT_THAT(Take(stream), SizeIs(1));
  sub().SetStreamDeadline(stream, absl::Seconds(10));
  Advance(absl::Seconds(60));
  ASSERT_THAT(Take(stream), SizeIs(1));
  Advance(absl::Seconds(10));
  EXPECT_THAT(Take(stream), SizeIs(1));
}

TEST_F(SubscriptionTest, AClosedStreamHoldsItsMessagesUntilTheDeadline) {
  Publish("a");
  const auto stream = sub().OpenStream({}, absl::Seconds(30));
  ASSERT_THAT(Take(stream), SizeIs(1));
  sub().CloseStream(stream, /*give_back=*/false);
  EXPECT_THAT(Pull(), IsEmpty());
  Advance(absl::Seconds(30));
  EXPECT_THAT(Pull(), SizeIs(1));
}

TEST_F(SubscriptionTest, AClosedStreamMayGiveItsMessagesBackAtOnceAndInOrder) {
  config_.set_enable_message_ordering(true);
  for (const char* data : {"1", "2", "3"}) Publish(data, "k");
  const auto stream = sub().OpenStream({2, 0}, absl::Seconds(30));
  ASSERT_THAT(Take(stream), SizeIs(2));
  sub().CloseStream(stream, /*give_back=*/true);
  EXPECT_THAT(Data(Pull()), ElementsAre("1", "2", "3"));
}

TEST_F(SubscriptionTest, WhatNeverLeftTheServerIsGivenBackInOrderAndIsNoAttempt) {
  config_.set_enable_message_ordering(true);
  config_.mutable_dead_letter_policy()->set_max_delivery_attempts(5);
  Publish("1", "k");
  Publish("x");
  Publish("2", "k");
  const auto stream = sub().OpenStream({}, absl::Seconds(30));
  sub().GiveBack(Take(stream));
  EXPECT_EQ(sub().counters().delivered, 0);
  const auto again = Take(stream);
  ASSERT_THAT(again, SizeIs(3));
  for (const LeasedMessage& delivery : again) EXPECT_EQ(delivery.delivery_attempt, 1);
  EXPECT_EQ(sub().counters().redelivered, 0);
}

class OrderedSubscriptionTest : public SubscriptionTest {
 protected:
  OrderedSubscriptionTest() { config_.set_enable_message_ordering(true); }
};

TEST_F(OrderedSubscriptionTest, AKeyHasOneBatchOutstandingOverPull) {
  for (const char* data : {"1", "2", "3"}) Publish(data, "k");
  Publish("other", "j");
  const auto first = Pull(2);
  ASSERT_THAT(Data(first), ElementsAre("1", "2"));
  EXPECT_THAT(Data(Pull()), ElementsAre("other"));
  Ack(first[0]);
  EXPECT_THAT(Pull(), IsEmpty());
  Ack(first[1]);
  EXPECT_THAT(Data(Pull()), ElementsAre("3"));
}

TEST_F(OrderedSubscriptionTest, AKeyBelongsToOneStreamWhileSomethingOfItIsOutstanding) {
  Publish("1", "k");
  const auto one = sub().OpenStream({}, absl::Seconds(60));
  const auto two = sub().OpenStream({}, absl::Seconds(60));
  const auto first = Take(one);
  ASSERT_THAT(first, SizeIs(1));
  Publish("2", "k");
  EXPECT_FALSE(sub().HasWork(two));
  EXPECT_THAT(Take(two), IsEmpty());
  EXPECT_TRUE(sub().HasWork(one));
  Ack(first[0]);
  EXPECT_THAT(Data(Take(two)), ElementsAre("2"));
}

TEST_F(OrderedSubscriptionTest, ANackRedeliversTheMessageAndAllLaterOnesOfItsKeyInOrder) {
  for (const char* data : {"1", "2", "3", "4"}) Publish(data, "k");
  Publish("other", "j");
  const auto stream = sub().OpenStream({4, 0}, absl::Seconds(60));
  const auto first = Take(stream);
  ASSERT_THAT(Data(first), ElementsAre("1", "2", "3", "4"));
  Ack(first[2]);   // acked, and yet redelivered with the earlier one
  Nack(first[1]);  // "1" stays leased
  EXPECT_THAT(Data(Take(stream)), ElementsAre("2", "3", "4"));
  Ack(first[3]);  // has no effect: of the delivery that was taken back
  Ack(first[0]);
  EXPECT_EQ(sub().counters().leased, 3);
}

TEST_F(OrderedSubscriptionTest, AnExpiredBatchIsOneRedeliveryInOrder) {
  for (const char* data : {"1", "2", "3"}) Publish(data, "k");
  config_.mutable_dead_letter_policy()->set_max_delivery_attempts(5);
  sub().Configure(config_);
  Pull();
  Advance(absl::Seconds(10));
  const auto again = Pull();
  ASSERT_THAT(Data(again), ElementsAre("1", "2", "3"));
  EXPECT_EQ(again[0].delivery_attempt, 2);
  EXPECT_EQ(again[1].delivery_attempt, 1) << "it was only taken back";
}

TEST_F(OrderedSubscriptionTest, NacksOfAWholeBatchInOneRequestAreOneRedelivery) {
  for (const char* data : {"1", "2", "3"}) Publish(data, "k");
  const auto got = Pull();
  sub().ModifyAckDeadline({{Id(got[2]), 0}, {Id(got[0]), 0}, {Id(got[1]), 0}}, now_);
  EXPECT_EQ(sub().counters().nacked, 1);
  EXPECT_THAT(Data(Pull()), ElementsAre("1", "2", "3"));
}

TEST_F(OrderedSubscriptionTest, ASuspendedMessageHoldsBackItsKeyAndNoOther) {
  config_.mutable_retry_policy()->mutable_minimum_backoff()->set_seconds(10);
  config_.mutable_retry_policy()->mutable_maximum_backoff()->set_seconds(10);
  Publish("1", "k");
  Publish("2", "k");
  Nack(Pull()[0]);
  Publish("3", "k");
  Publish("other", "j");
  EXPECT_THAT(Data(Pull()), ElementsAre("other"));
  EXPECT_EQ(sub().counters().backlog, 3);
  Advance(absl::Seconds(10));
  EXPECT_THAT(Data(Pull()), ElementsAre("1", "2", "3"));
}

TEST_F(OrderedSubscriptionTest, KeyedAndOtherMessagesTakeTurns) {
  for (int i = 0; i < 4; ++i) Publish("keyed", "k" + std::to_string(i));
  for (int i = 0; i < 4; ++i) Publish("plain");
  EXPECT_THAT(Data(Pull(4)), ::testing::UnorderedElementsAre("keyed", "keyed", "plain", "plain"));
}

class ExactlyOnceSubscriptionTest : public SubscriptionTest {
 protected:
  ExactlyOnceSubscriptionTest() { config_.set_enable_exactly_once_delivery(true); }
};

TEST_F(ExactlyOnceSubscriptionTest, AStaleAckIdIsRefused) {
  Publish("a");
  const auto first = Pull();
  Advance(absl::Seconds(10));
  EXPECT_THAT(Ack(first[0]).stale, ElementsAre(Id(first[0])));
  const auto second = Pull();
  EXPECT_THAT(Modify(first[0], 30).stale, ElementsAre(Id(first[0])));
  EXPECT_THAT(Ack(second[0]).done, ElementsAre(second[0].ack_id));
  EXPECT_THAT(Ack(second[0]).stale, SizeIs(1));
  EXPECT_THAT(sub().Acknowledge({"made up"}).stale, ElementsAre("made up"));
}

TEST_F(ExactlyOnceSubscriptionTest, AcksOfAKeyMustComeInOrder) {
  config_.set_enable_message_ordering(true);
  for (const char* data : {"1", "2", "3"}) Publish(data, "k");
  const auto got = Pull();
  EXPECT_THAT(Ack(got[1]).unordered, ElementsAre(Id(got[1])));
  // In one request the order of the ids does not matter.
  const AckOutcome both = sub().Acknowledge({Id(got[1]), Id(got[0])});
  EXPECT_THAT(both.done, SizeIs(2));
  EXPECT_THAT(Ack(got[2]).done, SizeIs(1));
}

class DeadLetterTest : public SubscriptionTest {
 protected:
  DeadLetterTest() {
    config_.mutable_dead_letter_policy()->set_dead_letter_topic("projects/p/topics/dlq");
    config_.mutable_dead_letter_policy()->set_max_delivery_attempts(5);
  }
  void FailTimes(int times) {
    for (int attempt = 1; attempt <= times; ++attempt) {
      const auto got = Pull(1);
      ASSERT_THAT(got, SizeIs(1));
      EXPECT_EQ(got[0].delivery_attempt, attempt);
      Nack(got[0]);
    }
  }
};

TEST_F(DeadLetterTest, AMessageGoesToTheDeadLetterTopicWithItsOriginAfterItsAttempts) {
  Publish("poison");
  FailTimes(5);
  EXPECT_THAT(Pull(), IsEmpty());
  const auto letters = sub().TakeDeadLetters();
  ASSERT_THAT(letters, SizeIs(1));
  EXPECT_EQ(letters[0].topic, "projects/p/topics/dlq");
  const auto& attributes = letters[0].message.attributes();
  EXPECT_EQ(attributes.at("CloudPubSubDeadLetterSourceDeliveryCount"), "5");
  EXPECT_EQ(attributes.at("CloudPubSubDeadLetterSourceSubscription"), "sub");
  EXPECT_EQ(attributes.at("CloudPubSubDeadLetterSourceSubscriptionProject"), "p");
  EXPECT_EQ(attributes.at("CloudPubSubDeadLetterSourceTopicPublishTime"),
            "2023-11-14T22:13:20+00:00");
  EXPECT_THAT(sub().TakeDeadLetters(), IsEmpty());
}

TEST_F(DeadLetterTest, WithoutTheTopicTheMessageStays) {
  dlq_exists_ = false;
  Publish("poison");
  FailTimes(7);
  EXPECT_THAT(sub().TakeDeadLetters(), IsEmpty());
}

TEST_F(DeadLetterTest, TheKeyGoesOnBehindItsDeadLetter) {
  config_.set_enable_message_ordering(true);
  Publish("poison", "k");
  Publish("next", "k");
  FailTimes(5);
  EXPECT_THAT(sub().TakeDeadLetters(), SizeIs(1));
  EXPECT_THAT(Data(Pull()), ElementsAre("next"));
}

class DeliverTwiceTest : public SubscriptionTest {
 protected:
  DeliverTwiceTest() { deliver_twice_ = true; }
};

TEST_F(DeliverTwiceTest, AMessageComesOnceMoreAfterItsAckAndThenNoMore) {
  Publish("a");
  const auto first = Pull();
  Ack(first[0]);
  Ack(first[0]);  // sent again by the client: not the ack of the second delivery
  const auto second = Pull();
  ASSERT_THAT(Data(second), ElementsAre("a"));
  EXPECT_NE(Id(first[0]), Id(second[0]));
  Ack(second[0]);
  EXPECT_THAT(Pull(), IsEmpty());
  EXPECT_EQ(sub().counters().backlog, 0);
}

TEST_F(DeliverTwiceTest, OrderedMessagesComeOnceMoreAsARunInOrder) {
  config_.set_enable_message_ordering(true);
  config_.set_enable_exactly_once_delivery(true);
  Publish("1", "k");
  Publish("2", "k");
  auto got = Pull();
  Ack(got[0]);
  Publish("3", "k");
  EXPECT_THAT(Pull(), IsEmpty());
  EXPECT_THAT(Ack(got[1]).done, SizeIs(1));
  got = Pull();
  ASSERT_THAT(Data(got), ElementsAre("1", "2", "3"));
  for (const LeasedMessage& delivery : got) EXPECT_THAT(Ack(delivery).done, SizeIs(1));
  got = Pull();
  ASSERT_THAT(Data(got), ElementsAre("3"));
  Ack(got[0]);
  EXPECT_THAT(Pull(), IsEmpty());
  EXPECT_EQ(sub().counters().backlog, 0);
}

TEST_F(SubscriptionTest, MessagesOlderThanTheRetentionAreGoneInEveryState) {
  config_.set_enable_message_ordering(true);
  Publish("leased");
  Publish("leased too", "k");
  ASSERT_THAT(Pull(), SizeIs(2));
  Publish("waiting");
  Publish("waiting too", "k");
  Advance(absl::Seconds(599));
  Publish("young", "k");
  Advance(absl::Seconds(1));
  EXPECT_THAT(Data(Pull()), ElementsAre("young"));
}

TEST_F(SubscriptionTest, ASeekToATimeReplaysRetainedMessagesAndSkipsOlderOnes) {
  config_.set_retain_acked_messages(true);
  config_.set_enable_message_ordering(true);
  Publish("old", "k");
  Advance(absl::Seconds(5));
  const absl::Time middle = now_;
  Publish("new", "k");
  Publish("plain");
  for (const LeasedMessage& delivery : Pull()) Ack(delivery);
  EXPECT_THAT(Pull(), IsEmpty());
  sub().Seek(middle);
  EXPECT_THAT(Data(Pull()), ::testing::UnorderedElementsAre("new", "plain"));
  sub().Seek(absl::InfiniteFuture());
  EXPECT_EQ(sub().counters().backlog, 0);
  EXPECT_EQ(sub().counters().leased, 0);
  sub().Seek(absl::InfinitePast());
  EXPECT_THAT(Pull(), SizeIs(3));
}

TEST_F(SubscriptionTest, AnAckedMessageThatIsNotRetainedCannotBeReplayed) {
  Publish("a");
  Ack(Pull()[0]);
  sub().Seek(absl::InfinitePast());
  EXPECT_THAT(Pull(), IsEmpty());
}

TEST_F(SubscriptionTest, ASeekToASnapshotRestoresExactlyItsMessages) {
  Publish("a");
  Publish("b");
  Publish("c");
  const auto got = Pull();
  Ack(got[0]);
  const auto snapshot = sub().entries().Unacked();
  Ack(got[1]);
  Publish("later");
  sub().Seek(snapshot);
  EXPECT_THAT(Data(Pull()), ElementsAre("b", "c"));
}

TEST_F(SubscriptionTest, AStreamGetsItsWholeCapacityBackAfterASeek) {
  Publish("a");
  const auto stream = sub().OpenStream({1, 0}, absl::Seconds(60));
  ASSERT_THAT(Take(stream), SizeIs(1));
  sub().Seek(absl::InfinitePast());
  EXPECT_THAT(Take(stream), SizeIs(1));
}

}  // namespace
}  // namespace postbox::emulator

// Topics, subscriptions, snapshots and acks through the broker. The test sets the clock.
#include "worker/emulator/broker/broker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "worker/emulator/broker/resource_spec.h"
#include "worker/emulator/broker/test_names.h"
#include "worker/emulator/rules/status.h"

namespace postbox::emulator {
namespace {

namespace pb = google::pubsub::v1;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

class CountingListener final : public Listener {
 public:
  void Wake() override { ++wakes; }
  int wakes = 0;
};

class BrokerTest : public ::testing::Test {
 protected:
  void Create(const std::string& subscription) {
    ASSERT_TRUE(CreateResources("p", {"topic"}, {subscription}, &broker_).ok());
  }
  std::vector<std::string> Publish(const std::vector<std::string>& data,
                                   const std::string& key = "") {
    pb::PublishRequest request;
    request.set_topic(kTopic);
    for (const std::string& text : data) {
      pb::PubsubMessage* message = request.add_messages();
      message->set_data(text);
      message->set_ordering_key(key);
    }
    const auto response = broker_.publishing()->Publish(request);
    EXPECT_TRUE(response.ok()) << response.status();
    return {response->message_ids().begin(), response->message_ids().end()};
  }
  std::vector<LeasedMessage> Pull(const std::string& subscription = kSub,
                                  const std::shared_ptr<Listener>& waiter = nullptr) {
    pb::PullRequest request;
    request.set_subscription(subscription);
    request.set_max_messages(100);
    const auto deliveries = broker_.pulling()->Pull(request, waiter);
    EXPECT_TRUE(deliveries.ok()) << deliveries.status();
    return deliveries.value_or(std::vector<LeasedMessage>());
  }
  absl::Status Ack(const std::vector<LeasedMessage>& deliveries) {
    pb::AcknowledgeRequest request;
    request.set_subscription(kSub);
    for (const LeasedMessage& delivery : deliveries)
      request.add_ack_ids(FormatAckId(delivery.ack_id));
    return broker_.pulling()->Acknowledge(request);
  }
  absl::Status Nack(const std::vector<LeasedMessage>& deliveries) {
    pb::ModifyAckDeadlineRequest request;
    request.set_subscription(kSub);
    for (const LeasedMessage& delivery : deliveries)
      request.add_ack_ids(FormatAckId(delivery.ack_id));
    return broker_.pulling()->ModifyAckDeadline(request);
  }
  StreamHandle Open(const std::shared_ptr<Listener>& listener, int64_t most = 0) {
    pb::StreamingPullRequest request;
    request.set_subscription(kSub);
    request.set_stream_ack_deadline_seconds(60);
    request.set_max_outstanding_messages(most);
    return broker_.pulling()->OpenStream(request, listener).value();
  }
  static std::vector<std::string> Data(const std::vector<LeasedMessage>& deliveries) {
    std::vector<std::string> data;
    for (const LeasedMessage& delivery : deliveries)
      data.push_back(delivery.message->Parse().data());
    return data;
  }

  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
  Broker broker_{[this] { return now_; }, BrokerOptions{}};
};

TEST_F(BrokerTest, PublishedMessagesHaveIdsInOrderAndThePublishTime) {
  Create("sub=topic");
  const auto ids = Publish({"a", "b"});
  const auto got = Pull();
  ASSERT_THAT(Data(got), ElementsAre("a", "b"));
  EXPECT_EQ(got[0].message->Parse().message_id(), ids[0]);
  EXPECT_EQ(got[1].message->Parse().message_id(), ids[1]);
  EXPECT_NE(ids[0], ids[1]);
  EXPECT_EQ(got[0].message->Parse().publish_time().seconds(), 1'700'000'000);
}

TEST_F(BrokerTest, WhatAPublisherSaysAboutIdAndTimeIsReplaced) {
  Create("sub=topic");
  pb::PublishRequest request;
  request.set_topic(kTopic);
  request.add_messages()->set_data("a");
  request.mutable_messages(0)->set_message_id("mine");
  request.mutable_messages(0)->mutable_publish_time()->set_nanos(5);
  (*request.mutable_messages(0)->mutable_attributes())["k"] = "v";
  const auto response = broker_.publishing()->Publish(request);
  ASSERT_TRUE(response.ok());
  const auto got = Pull();
  ASSERT_THAT(got, SizeIs(1));
  const pb::PubsubMessage message = got[0].message->Parse();
  EXPECT_EQ(message.message_id(), response->message_ids(0));
  EXPECT_EQ(message.publish_time().seconds(), 1'700'000'000);
  EXPECT_EQ(message.publish_time().nanos(), 0);
  EXPECT_EQ(message.attributes().at("k"), "v");
}

TEST_F(BrokerTest, EverySubscriptionGetsWhatIsPublishedAfterItWasMade) {
  Create("sub=topic");
  Publish({"a"});
  Create("late=topic");
  Publish({"b"});
  EXPECT_THAT(Data(Pull()), ElementsAre("a", "b"));
  EXPECT_THAT(Data(Pull("projects/p/subscriptions/late")), ElementsAre("b"));
}

TEST(BrokerAutoCreate, TopicsAreMadeWhenTheyAreNeededAndSubscriptionsAreNot) {
  Broker broker([] { return absl::UnixEpoch(); }, BrokerOptions{.auto_create = true});
  pb::PublishRequest request;
  request.set_topic("projects/p/topics/published");
  request.add_messages()->set_data("a");
  EXPECT_TRUE(broker.publishing()->Publish(request).ok());
  EXPECT_EQ(broker.topics()->Get("projects/p/topics/published")->name(),
            "projects/p/topics/published");
  pb::Subscription subscription;
  subscription.set_name("projects/p/subscriptions/follower");
  subscription.set_topic("projects/p/topics/followed");
  EXPECT_TRUE(broker.subscriptions()->Create(subscription).ok());
  request.set_topic("projects/p/topics/followed");
  EXPECT_TRUE(broker.publishing()->Publish(request).ok());
  EXPECT_TRUE(absl::IsNotFound(broker.topics()->Get("projects/p/topics/none").status()));
  EXPECT_TRUE(
      absl::IsNotFound(broker.subscriptions()->Get("projects/p/subscriptions/none").status()));
  request.set_topic("projects/p/topics/goog-reserved");
  EXPECT_TRUE(absl::IsInvalidArgument(broker.publishing()->Publish(request).status()))
      << "its name is checked";
}

TEST_F(BrokerTest, WhatDoesNotExistIsNotFoundAndWhatExistsIsNotMadeTwice) {
  Create("sub=topic");
  pb::Topic topic;
  topic.set_name(kTopic);
  EXPECT_TRUE(absl::IsAlreadyExists(broker_.topics()->Create(topic).status()));
  pb::Subscription subscription;
  subscription.set_name(kSub);
  subscription.set_topic(kTopic);
  EXPECT_TRUE(absl::IsAlreadyExists(broker_.subscriptions()->Create(subscription).status()));
  subscription.set_name("projects/p/subscriptions/other");
  subscription.set_topic("projects/p/topics/none");
  EXPECT_TRUE(absl::IsNotFound(broker_.subscriptions()->Create(subscription).status()));
  EXPECT_TRUE(absl::IsNotFound(broker_.topics()->Get("projects/p/topics/none").status()));
  EXPECT_TRUE(
      absl::IsNotFound(broker_.subscriptions()->Get("projects/p/subscriptions/no-").status()));
  EXPECT_TRUE(absl::IsNotFound(broker_.snapshots()->Delete("projects/p/snapshots/none")));
  pb::PublishRequest publish;
  publish.set_topic("projects/p/topics/none");
  publish.add_messages()->set_data("x");
  EXPECT_TRUE(absl::IsNotFound(broker_.publishing()->Publish(publish).status()));
}

TEST_F(BrokerTest, ListsComeInPages) {
  for (const char* id : {"aaa", "bbb", "ccc"}) {
    ASSERT_TRUE(CreateResources("p", {id}, {}, &broker_).ok());
  }
  ASSERT_TRUE(CreateResources("q", {"ddd"}, {}, &broker_).ok());
  pb::ListTopicsRequest request;
  request.set_project("projects/p");
  request.set_page_size(2);
  auto page = broker_.topics()->List(request).value();
  EXPECT_THAT(page.topics(), SizeIs(2));
  EXPECT_FALSE(page.next_page_token().empty());
  request.set_page_token(page.next_page_token());
  page = broker_.topics()->List(request).value();
  ASSERT_THAT(page.topics(), SizeIs(1));
  EXPECT_EQ(page.topics(0).name(), "projects/p/topics/ccc");
  EXPECT_TRUE(page.next_page_token().empty());
}

TEST_F(BrokerTest, ASubscriptionOutlivesItsTopicWithWhatItHolds) {
  Create("sub=topic");
  Publish({"a"});
  ASSERT_TRUE(broker_.topics()->Delete(kTopic).ok());
  EXPECT_EQ(broker_.subscriptions()->Get(kSub)->topic(), "_deleted-topic_");
  EXPECT_THAT(Data(Pull()), ElementsAre("a"));
}

TEST_F(BrokerTest, StaleAcksUnderExactlyOnceNameEachIdAndOthersStillCount) {
  Create("sub=topic,exactly-once");
  Publish({"a", "b"});
  const auto first = Pull();
  ASSERT_THAT(first, SizeIs(2));
  ASSERT_TRUE(Nack({first[0]}).ok());
  const absl::Status status = Ack(first);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(GetAckFailures(status),
              ElementsAre(Pair(FormatAckId(first[0].ack_id), kInvalidAckId)));
  EXPECT_THAT(Data(Pull()), ElementsAre("a"));
}

TEST_F(BrokerTest, UnorderedAcksUnderExactlyOnceAreTransientFailures) {
  Create("sub=topic,exactly-once,ordered");
  Publish({"a", "b"}, "k");
  const auto got = Pull();
  const absl::Status status = Ack({got[1]});
  EXPECT_THAT(GetAckFailures(status),
              ElementsAre(Pair(FormatAckId(got[1].ack_id), kUnorderedAckId)));
  EXPECT_TRUE(Ack(got).ok());
}

TEST_F(BrokerTest, WithoutExactlyOnceStaleAcksAreFineButMadeUpOnesAreNot) {
  Create("sub=topic");
  Publish({"a"});
  const auto got = Pull();
  EXPECT_TRUE(Ack(got).ok());
  EXPECT_TRUE(Ack(got).ok());
  pb::AcknowledgeRequest request;
  request.set_subscription(kSub);
  request.add_ack_ids("made up");
  EXPECT_TRUE(absl::IsInvalidArgument(broker_.pulling()->Acknowledge(request)));
}

TEST_F(BrokerTest, AnAckAfterTheDeadlineIsStaleEvenBeforeTheNextTick) {
  Create("sub=topic,exactly-once,ack-deadline=10");
  Publish({"a"});
  const auto got = Pull();
  now_ += absl::Seconds(10);
  EXPECT_THAT(GetAckFailures(Ack(got)), SizeIs(1));
}

TEST_F(BrokerTest, ADeadLetterArrivesAtTheSubscriptionsOfItsTopic) {
  Create("sub=topic,dead-letter=dlq:5");
  ASSERT_TRUE(CreateResources("p", {}, {"dead=dlq"}, &broker_).ok());
  Publish({"poison"}, "key");
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(Nack(Pull()).ok());
  EXPECT_THAT(Pull(), IsEmpty());
  const auto dead = Pull("projects/p/subscriptions/dead");
  ASSERT_THAT(Data(dead), ElementsAre("poison"));
  EXPECT_EQ(dead[0].message->Parse().ordering_key(), "key");
  EXPECT_EQ(dead[0].message->Parse().attributes().at("CloudPubSubDeadLetterSourceDeliveryCount"),
            "5");
}

TEST_F(BrokerTest, AnUpdateChangesOnlyTheFieldsOfItsMaskAndChecksThem) {
  Create("sub=topic,ack-deadline=20");
  pb::UpdateSubscriptionRequest request;
  request.mutable_subscription()->set_name(kSub);
  request.mutable_subscription()->set_enable_exactly_once_delivery(true);
  request.mutable_subscription()->set_ack_deadline_seconds(5);
  request.mutable_update_mask()->add_paths("enable_exactly_once_delivery");
  auto changed = broker_.subscriptions()->Update(request);
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_TRUE(changed->enable_exactly_once_delivery());
  EXPECT_EQ(changed->ack_deadline_seconds(), 20);
  request.mutable_update_mask()->add_paths("ack_deadline_seconds");
  EXPECT_TRUE(absl::IsInvalidArgument(broker_.subscriptions()->Update(request).status()));
  request.mutable_update_mask()->clear_paths();
  request.mutable_update_mask()->add_paths("enable_message_ordering");
  EXPECT_TRUE(absl::IsInvalidArgument(broker_.subscriptions()->Update(request).status()));
}

TEST_F(BrokerTest, ListenersAreWokenWhenThereIsSomethingForThem) {
  Create("sub=topic");
  const auto listener = std::make_shared<CountingListener>();
  const auto stream = Open(listener, /*most=*/1);
  Publish({"a", "b"});
  EXPECT_EQ(listener->wakes, 1);
  const auto first = stream.Take()->deliveries;
  ASSERT_THAT(first, SizeIs(1));
  Publish({"c"});
  EXPECT_EQ(listener->wakes, 1) << "the stream is full";
  ASSERT_TRUE(Ack(first).ok());
  EXPECT_EQ(listener->wakes, 2);
  ASSERT_THAT(stream.Take()->deliveries, SizeIs(1));
  now_ += absl::Seconds(60);
  broker_.Tick();
  EXPECT_EQ(listener->wakes, 3) << "the lease is over";
  stream.Close();
  Publish({"d"});
  EXPECT_EQ(listener->wakes, 3);
}

TEST_F(BrokerTest, AWaitingPullIsWokenOnce) {
  Create("sub=topic");
  const auto waiter = std::make_shared<CountingListener>();
  EXPECT_THAT(Pull(kSub, waiter), IsEmpty());
  Publish({"a"});
  Publish({"b"});
  EXPECT_EQ(waiter->wakes, 1);
}

TEST_F(BrokerTest, AStreamLearnsThatItsSubscriptionIsGone) {
  Create("sub=topic");
  const auto listener = std::make_shared<CountingListener>();
  const auto stream = Open(listener);
  ASSERT_TRUE(broker_.subscriptions()->Delete(kSub).ok());
  EXPECT_EQ(listener->wakes, 1);
  EXPECT_TRUE(absl::IsNotFound(stream.Take().status()));
  stream.Close();
  EXPECT_TRUE(absl::IsNotFound(broker_.subscriptions()->Delete(kSub)));
}

TEST_F(BrokerTest, ASnapshotBringsBackWhatWasUnackedAndWhatCameAfterIt) {
  Create("sub=topic");
  ASSERT_TRUE(CreateResources("p", {"other"}, {"elsewhere=other"}, &broker_).ok());
  Publish({"a", "b"});
  const auto got = Pull();
  ASSERT_TRUE(Ack({got[0]}).ok());
  pb::CreateSnapshotRequest create;
  create.set_name("projects/p/snapshots/snap");
  create.set_subscription(kSub);
  const auto snapshot = broker_.snapshots()->Create(create);
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  EXPECT_EQ(snapshot->topic(), kTopic);
  EXPECT_EQ(snapshot->expire_time().seconds(), 1'700'000'000 + 7 * 86400);
  EXPECT_TRUE(absl::IsAlreadyExists(broker_.snapshots()->Create(create).status()));
  ASSERT_TRUE(Ack({got[1]}).ok());
  Publish({"c"});
  ASSERT_TRUE(Ack(Pull()).ok());
  pb::SeekRequest seek;
  seek.set_subscription(kSub);
  seek.set_snapshot("projects/p/snapshots/snap");
  ASSERT_TRUE(broker_.snapshots()->Seek(seek).ok());
  EXPECT_THAT(Data(Pull()), ElementsAre("b", "c"));

  seek.set_subscription("projects/p/subscriptions/elsewhere");
  EXPECT_TRUE(absl::IsFailedPrecondition(broker_.snapshots()->Seek(seek)));
  for (const char* name : {"", "snap", kSub}) {  // not the names of snapshots
    seek.set_snapshot(name);
    EXPECT_TRUE(absl::IsInvalidArgument(broker_.snapshots()->Seek(seek))) << name;
  }
  seek.mutable_time()->set_nanos(-1);
  EXPECT_TRUE(absl::IsInvalidArgument(broker_.snapshots()->Seek(seek)));
  seek.clear_target();
  EXPECT_TRUE(absl::IsInvalidArgument(broker_.snapshots()->Seek(seek)));

  now_ += absl::Hours(7 * 24);
  broker_.Tick();
  EXPECT_TRUE(absl::IsNotFound(broker_.snapshots()->Get("projects/p/snapshots/snap").status()));
}

TEST_F(BrokerTest, ASeekByTimeReplaysWhatIsRetained) {
  Create("sub=topic,retain-acked");
  Publish({"a"});
  now_ += absl::Seconds(10);
  Publish({"b"});
  ASSERT_TRUE(Ack(Pull()).ok());
  pb::SeekRequest seek;
  seek.set_subscription(kSub);
  seek.mutable_time()->set_seconds(1'700'000'005);
  ASSERT_TRUE(broker_.snapshots()->Seek(seek).ok());
  EXPECT_THAT(Data(Pull()), ElementsAre("b"));
}

TEST_F(BrokerTest, AcceptedMessagesAreDeliveredInTheirOrderWhenTheirPublishersAreAnswered) {
  Create("sub=topic,ordered");
  const auto listener = std::make_shared<CountingListener>();
  const auto stream = Open(listener);
  const auto accept = [this](const char* data) {
    pb::PublishRequest request;
    request.set_topic(kTopic);
    request.add_messages()->set_data(data);
    request.mutable_messages(0)->set_ordering_key("key");
    return broker_.publishing()->Accept(request).value();
  };
  const auto first = accept("a");
  const auto second = accept("b");
  EXPECT_LT(first.response.message_ids(0), second.response.message_ids(0));
  broker_.publishing()->Deliver(second.messages);
  EXPECT_EQ(listener->wakes, 0);
  EXPECT_THAT(stream.Take()->deliveries, IsEmpty());
  broker_.publishing()->Deliver(first.messages);
  EXPECT_EQ(listener->wakes, 2);
  EXPECT_THAT(Data(stream.Take()->deliveries), ElementsAre("a", "b"));
  // A publisher that does not take its answer holds up no subscriber for long.
  const auto third = accept("c");
  broker_.Tick();
  EXPECT_THAT(stream.Take()->deliveries, IsEmpty());
  now_ += absl::Seconds(1);
  broker_.Tick();
  EXPECT_THAT(Data(stream.Take()->deliveries), ElementsAre("c"));
  broker_.publishing()->Deliver(third.messages);
  EXPECT_THAT(stream.Take()->deliveries, IsEmpty());
  // A subscription does not get what was published before it was created.
  const auto fourth = accept("d");
  Create("late=topic");
  EXPECT_THAT(Pull("projects/p/subscriptions/late"), IsEmpty());
  stream.Close();
}

TEST_F(BrokerTest, AFilterKeepsWhatItDoesNotMatchOutOfTheBacklog) {
  Create("sub=topic,ordered,filter=attributes.kind = \"a\" OR hasPrefix(attributes.kind, \"b\")");
  pb::PublishRequest request;
  request.set_topic(kTopic);
  for (const char* kind : {"a", "c", "b1", "", "b2"}) {
    pb::PubsubMessage* message = request.add_messages();
    message->set_data(kind);
    message->set_ordering_key("key");
    if (kind[0] != 0)
      (*message->mutable_attributes())["kind"] = kind;
    else
      message->set_data("none");
  }
  ASSERT_EQ(broker_.publishing()->Publish(request)->message_ids_size(), 5);
  EXPECT_EQ(broker_.Stats().at(0).counters.backlog, 3);
  const auto got = Pull();
  EXPECT_THAT(Data(got), ElementsAre("a", "b1", "b2"));
  EXPECT_TRUE(Ack(got).ok());
  EXPECT_EQ(broker_.Stats().at(0).counters.backlog, 0);
}

TEST_F(BrokerTest, ASeekBringsNothingBackThatTheFilterDoesNotMatch) {
  Create("sub=topic,retain-acked,filter=attributes:kind");
  Create("all=topic");
  pb::CreateSnapshotRequest snapshot;
  snapshot.set_name("projects/p/snapshots/snap");
  snapshot.set_subscription("projects/p/subscriptions/all");
  ASSERT_TRUE(broker_.snapshots()->Create(snapshot).ok());
  Publish({"plain"});
  EXPECT_THAT(Pull("projects/p/subscriptions/all"), SizeIs(1));
  pb::SeekRequest seek;
  seek.set_subscription(kSub);
  seek.mutable_time()->set_seconds(0);
  ASSERT_TRUE(broker_.snapshots()->Seek(seek).ok());
  EXPECT_THAT(Pull(), IsEmpty());
  seek.set_snapshot(snapshot.name());
  ASSERT_TRUE(broker_.snapshots()->Seek(seek).ok());
  EXPECT_THAT(Pull(), IsEmpty());
  EXPECT_EQ(broker_.Stats().at(1).counters.backlog, 0);
}

TEST_F(BrokerTest, ABadFilterIsRefusedAndAFilterIsNotChanged) {
  pb::Subscription subscription;
  ASSERT_TRUE(CreateResources("p", {"topic"}, {}, &broker_).ok());
  subscription.set_name(kSub);
  subscription.set_topic(kTopic);
  subscription.set_filter("attributes:a AND attributes:b OR attributes:c");
  EXPECT_EQ(broker_.subscriptions()->Create(subscription).status().code(),
            absl::StatusCode::kInvalidArgument);
  subscription.set_filter("attributes:a");
  EXPECT_EQ(broker_.subscriptions()->Create(subscription)->filter(), "attributes:a");
  pb::UpdateSubscriptionRequest update;
  *update.mutable_subscription() = subscription;
  update.mutable_subscription()->set_filter("attributes:b");
  update.mutable_update_mask()->add_paths("filter");
  EXPECT_EQ(broker_.subscriptions()->Update(update).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(broker_.subscriptions()->Get(kSub)->filter(), "attributes:a");
}

TEST(ResourceSpec, EveryOptionOfASubscriptionIsUnderstood) {
  const auto subscription = ParseSubscription("p",
                                              "sub=topic,ordered,exactly-once,retain-acked,ack-"
                                              "deadline=30,dead-letter=dlq:7,retry=1500:20000,"
                                              "filter=hasPrefix(attributes.a, \"b=,\")");
  ASSERT_TRUE(subscription.ok()) << subscription.status();
  EXPECT_EQ(subscription->name(), kSub);
  EXPECT_EQ(subscription->topic(), kTopic);
  EXPECT_TRUE(subscription->enable_message_ordering());
  EXPECT_TRUE(subscription->enable_exactly_once_delivery());
  EXPECT_TRUE(subscription->retain_acked_messages());
  EXPECT_EQ(subscription->ack_deadline_seconds(), 30);
  EXPECT_EQ(subscription->dead_letter_policy().dead_letter_topic(), "projects/p/topics/dlq");
  EXPECT_EQ(subscription->dead_letter_policy().max_delivery_attempts(), 7);
  EXPECT_EQ(subscription->retry_policy().minimum_backoff().seconds(), 1);
  EXPECT_EQ(subscription->retry_policy().minimum_backoff().nanos(), 500'000'000);
  EXPECT_EQ(subscription->retry_policy().maximum_backoff().seconds(), 20);
  EXPECT_EQ(subscription->filter(), "hasPrefix(attributes.a, \"b=,\")");
  for (const char* bad : {"sub", "sub=", "sub=topic,unknown", "sub=topic,ordered=yes",
                          "sub=topic,ack-deadline=x", "sub=topic,dead-letter=dlq"}) {
    EXPECT_FALSE(ParseSubscription("p", bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace postbox::emulator

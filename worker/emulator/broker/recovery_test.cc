// What a data directory keeps: each test ends a broker without a warning, as a crash does, and
// looks at what the next one has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "worker/emulator/broker/broker.h"
#include "worker/emulator/broker/test_names.h"

namespace postbox::emulator {
namespace {

namespace pb = google::pubsub::v1;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kSnapshot[] = "projects/p/snapshots/snap";

struct Delivery {
  std::string data;
  std::string ack_id;
  int attempt = 0;
};

class BrokerRecoveryTest : public testing::Test {
 protected:
  BrokerRecoveryTest() {
    std::string pattern = testing::TempDir() + "data-dir-XXXXXX";
    directory_ = mkdtemp(pattern.data());
    subscription_.set_name(kSub);
    subscription_.set_topic(kTopic);
    Restart();
  }
  ~BrokerRecoveryTest() override {
    broker_.reset();
    std::filesystem::remove_all(directory_);
  }

  void Restart() {
    broker_.reset();
    BrokerOptions options;
    options.data_directory = directory_;
    broker_ = std::make_unique<Broker>([this] { return now_ += absl::Microseconds(1); }, options);
    const absl::Status status = broker_->Recover();
    ASSERT_TRUE(status.ok()) << status;
  }
  void Create() {
    pb::Topic topic;
    topic.set_name(kTopic);
    ASSERT_TRUE(broker_->topics()->Create(topic).ok());
    const auto created = broker_->subscriptions()->Create(subscription_);
    ASSERT_TRUE(created.ok()) << created.status();
  }
  std::string Publish(const std::string& data, const std::string& key = "") {
    pb::PublishRequest request;
    request.set_topic(kTopic);
    request.add_messages()->set_data(data);
    request.mutable_messages(0)->set_ordering_key(key);
    const auto response = broker_->publishing()->Publish(request);
    EXPECT_TRUE(response.ok()) << response.status();
    return response->message_ids(0);
  }
  std::vector<Delivery> Pull(const std::string& subscription = kSub, int most = 100) {
    pb::PullRequest request;
    request.set_subscription(subscription);
    request.set_max_messages(most);
    std::vector<Delivery> all;
    const auto pulled = broker_->pulling()->Pull(request, nullptr);
    EXPECT_TRUE(pulled.ok()) << pulled.status();
    for (const LeasedMessage& each : *pulled) {
      all.push_back(
          {each.message->Parse().data(), FormatAckId(each.ack_id), each.delivery_attempt});
    }
    return all;
  }
  std::vector<std::string> Data(const std::string& subscription = kSub) {
    std::vector<std::string> data;
    for (const Delivery& each : Pull(subscription)) data.push_back(each.data);
    return data;
  }
  void Ack(const Delivery& delivery) {
    pb::AcknowledgeRequest request;
    request.set_subscription(kSub);
    request.add_ack_ids(delivery.ack_id);
    ASSERT_TRUE(broker_->pulling()->Acknowledge(request).ok());
  }
  void Nack(const Delivery& delivery) {
    pb::ModifyAckDeadlineRequest request;
    request.set_subscription(kSub);
    request.add_ack_ids(delivery.ack_id);
    ASSERT_TRUE(broker_->pulling()->ModifyAckDeadline(request).ok());
  }
  size_t MessagesOnDisk() {
    broker_.reset();
    const auto store = RecordStore::Open(directory_);
    size_t count = 0;
    EXPECT_TRUE((*store)
                    ->ForEach(Journal::kMessage,
                              [&count](absl::string_view, absl::string_view) {
                                ++count;
                                return absl::OkStatus();
                              })
                    .ok());
    return count;
  }

  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
  std::string directory_;
  pb::Subscription subscription_;
  std::unique_ptr<Broker> broker_;
};

TEST_F(BrokerRecoveryTest, WhatWasNotAcknowledgedComesAgainWithTheSameIds) {
  Create();
  Publish("a");
  const std::string id = Publish("b");
  const std::vector<Delivery> first = Pull();
  ASSERT_EQ(first.size(), 2u);
  Ack(first[0]);
  Restart();
  const auto again = broker_->pulling()->Pull(
      [] {
        pb::PullRequest request;
        request.set_subscription(kSub);
        request.set_max_messages(10);
        return request;
      }(),
      nullptr);
  ASSERT_EQ(again->size(), 1u);
  EXPECT_EQ((*again)[0].message->Parse().data(), "b");
  EXPECT_EQ((*again)[0].message->Parse().message_id(), id);
  Ack(first[1]);  // an ack id of before has no effect
  Restart();
  EXPECT_THAT(Data(), ElementsAre("b"));
}

TEST_F(BrokerRecoveryTest, IdsAndTheOrderGoOn) {
  subscription_.set_enable_message_ordering(true);
  Create();
  const std::string old_id = Publish("a", "k");
  Restart();
  EXPECT_GT(std::stoull(Publish("b", "k")), std::stoull(old_id));
  Restart();
  Publish("c", "k");
  EXPECT_THAT(Data(), ElementsAre("a", "b", "c"));
}

TEST_F(BrokerRecoveryTest, WhatWasAnsweredAndNotYetDeliveredIsDeliveredOnce) {
  Create();
  Publish("before");
  pb::PublishRequest request;
  request.set_topic(kTopic);
  request.add_messages()->set_data("accepted");
  const auto accepted = broker_->publishing()->Accept(request);
  ASSERT_TRUE(accepted.ok());
  Restart();
  EXPECT_THAT(Data(), ElementsAre("before", "accepted"));
  Restart();
  EXPECT_THAT(Data(), ElementsAre("before", "accepted"));
}

TEST_F(BrokerRecoveryTest, OfAnOrderedKeyNothingComesBehindWhatItFollows) {
  subscription_.set_enable_message_ordering(true);
  Create();
  for (const char* data : {"a", "b", "c"}) Publish(data, "k");
  const std::vector<Delivery> all = Pull();
  ASSERT_EQ(all.size(), 3u);
  Ack(all[1]);
  Restart();
  EXPECT_THAT(Data(), ElementsAre("a", "b", "c"));
}

TEST_F(BrokerRecoveryTest, UnderExactlyOnceWhatWasAcknowledgedNeverComesAgain) {
  subscription_.set_enable_message_ordering(true);
  subscription_.set_enable_exactly_once_delivery(true);
  Create();
  for (const char* data : {"a", "b", "c"}) Publish(data, "k");
  const std::vector<Delivery> all = Pull();
  ASSERT_EQ(all.size(), 3u);
  Ack(all[0]);
  Restart();
  EXPECT_THAT(Data(), ElementsAre("b", "c"));
}

TEST_F(BrokerRecoveryTest, DeliveryAttemptsGoOn) {
  pb::Topic dead;
  dead.set_name("projects/p/topics/dead");
  ASSERT_TRUE(broker_->topics()->Create(dead).ok());
  subscription_.mutable_dead_letter_policy()->set_dead_letter_topic(dead.name());
  subscription_.mutable_dead_letter_policy()->set_max_delivery_attempts(5);
  Create();
  pb::Subscription of_dead;
  of_dead.set_name("projects/p/subscriptions/dead");
  of_dead.set_topic(dead.name());
  ASSERT_TRUE(broker_->subscriptions()->Create(of_dead).ok());
  Publish("a");
  for (int attempt = 1; attempt <= 5; ++attempt) {
    const std::vector<Delivery> all = Pull();
    ASSERT_EQ(all.size(), 1u);
    EXPECT_EQ(all[0].attempt, attempt);
    Nack(all[0]);
    Restart();
  }
  EXPECT_THAT(Data(), IsEmpty());
  EXPECT_THAT(Data(of_dead.name()), ElementsAre("a"));
}

TEST_F(BrokerRecoveryTest, SnapshotsSeeksAndRetentionAreKept) {
  subscription_.set_retain_acked_messages(true);
  Create();
  pb::UpdateTopicRequest update;
  update.mutable_topic()->set_name(kTopic);
  update.mutable_topic()->mutable_message_retention_duration()->set_seconds(3600);
  update.mutable_update_mask()->add_paths("message_retention_duration");
  ASSERT_TRUE(broker_->topics()->Update(update).ok());
  Publish("a");
  Publish("b");
  Ack(Pull().front());
  pb::CreateSnapshotRequest snapshot;
  snapshot.set_name(kSnapshot);
  snapshot.set_subscription(kSub);
  ASSERT_TRUE(broker_->snapshots()->Create(snapshot).ok());
  Publish("c");
  for (const Delivery& each : Pull()) Ack(each);
  Restart();
  pb::SeekRequest seek;
  seek.set_subscription(kSub);
  seek.set_snapshot(kSnapshot);
  ASSERT_TRUE(broker_->snapshots()->Seek(seek).ok());
  Restart();
  EXPECT_THAT(Data(), ElementsAre("b", "c"));
  pb::Subscription other;
  other.set_name("projects/p/subscriptions/other");
  other.set_topic(kTopic);
  ASSERT_TRUE(broker_->subscriptions()->Create(other).ok());
  seek.set_subscription(other.name());
  seek.mutable_time()->set_seconds(absl::ToUnixSeconds(now_ - absl::Minutes(1)));
  ASSERT_TRUE(broker_->snapshots()->Seek(seek).ok());
  EXPECT_THAT(Data(other.name()), ElementsAre("a", "b", "c"));
}

TEST_F(BrokerRecoveryTest, WhatWasDeletedStaysSoAndLeavesNothingToOneOfItsName) {
  Create();
  Publish("old");
  ASSERT_TRUE(broker_->subscriptions()->Delete(kSub).ok());
  ASSERT_TRUE(broker_->subscriptions()->Create(subscription_).ok());
  Restart();
  EXPECT_THAT(Data(), IsEmpty());
  ASSERT_TRUE(broker_->topics()->Delete(kTopic).ok());
  pb::Topic topic;
  topic.set_name(kTopic);
  ASSERT_TRUE(broker_->topics()->Create(topic).ok());
  Restart();
  EXPECT_EQ(broker_->subscriptions()->Get(kSub)->topic(), "_deleted-topic_");
  Publish("new");
  Restart();
  EXPECT_THAT(Data(), IsEmpty());
}

TEST_F(BrokerRecoveryTest, ConfigurationPoliciesAndSchemasAreKept) {
  Create();
  pb::UpdateSubscriptionRequest update;
  update.mutable_subscription()->set_name(kSub);
  update.mutable_subscription()->set_ack_deadline_seconds(77);
  update.mutable_update_mask()->add_paths("ack_deadline_seconds");
  ASSERT_TRUE(broker_->subscriptions()->Update(update).ok());
  google::iam::v1::SetIamPolicyRequest policy;
  policy.set_resource(kTopic);
  policy.mutable_policy()->add_bindings()->set_role("roles/pubsub.publisher");
  policy.mutable_policy()->mutable_bindings(0)->add_members("allUsers");
  ASSERT_TRUE(broker_->policies()->Set(policy).ok());
  pb::CreateSchemaRequest schema;
  schema.set_parent("projects/p");
  schema.set_schema_id("schema");
  schema.mutable_schema()->set_type(pb::Schema::AVRO);
  schema.mutable_schema()->set_definition("\"int\"");
  const auto created = broker_->schemas()->Create(schema);
  ASSERT_TRUE(created.ok());
  Restart();
  EXPECT_EQ(broker_->subscriptions()->Get(kSub)->ack_deadline_seconds(), 77);
  google::iam::v1::GetIamPolicyRequest get;
  get.set_resource(kTopic);
  EXPECT_EQ(broker_->policies()->Get(get)->bindings_size(), 1);
  pb::GetSchemaRequest read;
  read.set_name("projects/p/schemas/schema");
  EXPECT_EQ(broker_->schemas()->Get(read)->revision_id(), created->revision_id());
  ASSERT_TRUE(broker_->topics()->DeleteSchema(read.name()).ok());
  Restart();
  EXPECT_EQ(broker_->schemas()->Get(read).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(BrokerRecoveryTest, AMessageThatNobodyNeedsIsOnTheDiskNoLonger) {
  Create();
  for (int i = 0; i < 10; ++i) Publish(std::to_string(i));
  {
    const std::vector<Delivery> all = Pull();
    for (size_t i = 0; i < 7; ++i) Ack(all[i]);
  }
  broker_->Tick();
  EXPECT_EQ(MessagesOnDisk(), 3u);
  Restart();
  ASSERT_TRUE(broker_->subscriptions()->Detach(kSub).ok());
  broker_->Tick();
  EXPECT_EQ(MessagesOnDisk(), 0u);
}

TEST_F(BrokerRecoveryTest, AnotherBrokerCannotTakeTheDirectory) {
  BrokerOptions options;
  options.data_directory = directory_;
  Broker second([] { return absl::Now(); }, options);
  EXPECT_EQ(second.Recover().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace postbox::emulator

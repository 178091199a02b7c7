// What is refused because the emulator does not do it, and the administration of topics,
// subscriptions and snapshots. The test sets the clock.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "worker/emulator/broker/broker.h"
#include "worker/emulator/broker/test_names.h"
#include "worker/emulator/rules/service_limits.h"

namespace postbox::emulator {
namespace {

namespace pb = google::pubsub::v1;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr int64_t kDay = 86400;

void ExpectError(const absl::Status& status, absl::StatusCode code, const std::string& text) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(text));
}
void ExpectUnimplemented(const absl::Status& status, const std::string& field) {
  ExpectError(status, absl::StatusCode::kUnimplemented, field + " is not implemented");
}
void ExpectInvalid(const absl::Status& status, const std::string& text) {
  ExpectError(status, absl::StatusCode::kInvalidArgument, text);
}

class BrokerAdminTest : public ::testing::Test {
 protected:
  BrokerAdminTest() {
    topic_.set_name(kTopic);
    subscription_.set_name(kSub);
    subscription_.set_topic(kTopic);
  }
  void Create() {
    ASSERT_TRUE(broker_.topics()->Create(topic_).ok());
    const auto created = broker_.subscriptions()->Create(subscription_);
    ASSERT_TRUE(created.ok()) << created.status();
  }
  void Publish(const std::string& data) {
    pb::PublishRequest request;
    request.set_topic(kTopic);
    request.add_messages()->set_data(data);
    ASSERT_TRUE(broker_.publishing()->Publish(request).ok());
  }
  absl::StatusOr<std::vector<LeasedMessage>> TryPull() {
    pb::PullRequest request;
    request.set_subscription(kSub);
    request.set_max_messages(100);
    return broker_.pulling()->Pull(request, nullptr);
  }
  std::vector<std::string> Pull() {
    std::vector<std::string> data;
    const auto deliveries = TryPull();
    EXPECT_TRUE(deliveries.ok()) << deliveries.status();
    for (const LeasedMessage& delivery : *deliveries)
      data.push_back(delivery.message->Parse().data());
    return data;
  }
  absl::StatusOr<pb::Snapshot> TakeSnapshot(const std::string& name) {
    pb::CreateSnapshotRequest request;
    request.set_name(name);
    request.set_subscription(kSub);
    return broker_.snapshots()->Create(request);
  }
  absl::Status SeekBack(absl::Duration duration) {
    pb::SeekRequest request;
    request.set_subscription(kSub);
    request.mutable_time()->set_seconds(absl::ToUnixSeconds(now_ - duration));
    return broker_.snapshots()->Seek(request);
  }
  absl::StatusOr<pb::Subscription> Update(const std::string& path) {
    pb::UpdateSubscriptionRequest request;
    *request.mutable_subscription() = subscription_;
    request.mutable_update_mask()->add_paths(path);
    return broker_.subscriptions()->Update(request);
  }
  absl::StatusOr<pb::Topic> UpdateTopic(const std::string& path) {
    pb::UpdateTopicRequest request;
    *request.mutable_topic() = topic_;
    request.mutable_update_mask()->add_paths(path);
    return broker_.topics()->Update(request);
  }

  pb::Topic topic_;
  pb::Subscription subscription_;
  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
  Broker broker_{[this] { return now_; }, BrokerOptions{}};
};

// A field that our definition of the message does not have, as it comes over the wire.
template <class Message>
Message With(Message message, int number) {
  message.GetReflection()->MutableUnknownFields(&message)->AddLengthDelimited(number, "x");
  return message;
}

TEST_F(BrokerAdminTest, WhatIsNotDoneIsRefusedByName) {
  pb::Topic topic = topic_;
  topic.set_kms_key_name("key");
  ExpectUnimplemented(broker_.topics()->Create(topic).status(), "kms_key_name");
  ExpectUnimplemented(broker_.topics()->Create(With(topic_, 10)).status(),
                      "ingestion_data_source_settings");
  ExpectUnimplemented(broker_.topics()->Create(With(topic_, 13)).status(), "message_transforms");
  ExpectUnimplemented(broker_.topics()->Create(With(topic_, 77)).status(), "field 77 of Topic");
  Create();
  subscription_.set_name("projects/p/subscriptions/other");
  for (const auto& [number, name] :
       std::vector<std::pair<int, std::string>>{{18, "bigquery_config"},
                                                {22, "cloud_storage_config"},
                                                {25, "message_transforms"},
                                                {27, "bigtable_config"}}) {
    ExpectUnimplemented(broker_.subscriptions()->Create(With(subscription_, number)).status(),
                        name);
    subscription_.set_name(kSub);
    ExpectUnimplemented(Update(name).status(), name);
    subscription_.set_name("projects/p/subscriptions/other");
  }
  pb::Subscription push = subscription_;
  push.mutable_push_config()->set_push_endpoint("https://example.com/push");
  ExpectUnimplemented(broker_.subscriptions()->Create(push).status(), "push_config");
  push = subscription_;
  *push.mutable_dead_letter_policy() = With(pb::DeadLetterPolicy(), 9);
  ExpectUnimplemented(broker_.subscriptions()->Create(push).status(),
                      "field 9 of DeadLetterPolicy");
  EXPECT_EQ(broker_.subscriptions()->Get(subscription_.name()).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(BrokerAdminTest, AnEmptyPushConfigMeansPull) {
  subscription_.mutable_push_config();
  Create();
  EXPECT_TRUE(Update("push_config").ok());
  pb::ModifyPushConfigRequest request;
  request.set_subscription(kSub);
  EXPECT_TRUE(broker_.subscriptions()->ModifyPushConfig(request).ok());
  request.mutable_push_config()->set_push_endpoint("https://example.com/push");
  ExpectUnimplemented(broker_.subscriptions()->ModifyPushConfig(request), "push_config");
  request.clear_push_config();
  request.set_subscription("projects/p/subscriptions/none");
  EXPECT_EQ(broker_.subscriptions()->ModifyPushConfig(request).code(), absl::StatusCode::kNotFound);
}

// Programs read push_config.push_endpoint to tell pull from push.
TEST_F(BrokerAdminTest, APullSubscriptionIsReturnedWithAnEmptyPushConfig) {
  Create();
  const auto found = broker_.subscriptions()->Get(kSub);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_TRUE(found->has_push_config());
  EXPECT_EQ(found->push_config().ByteSizeLong(), 0);
  subscription_.set_ack_deadline_seconds(30);
  EXPECT_TRUE(Update("ack_deadline_seconds").ok());
  EXPECT_TRUE(broker_.subscriptions()->Get(kSub)->has_push_config());
}

TEST_F(BrokerAdminTest, ASubscriptionWithoutANameIsGivenOneInTheProjectOfItsTopic) {
  Create();
  subscription_.clear_name();
  const auto first = broker_.subscriptions()->Create(subscription_);
  const auto second = broker_.subscriptions()->Create(subscription_);
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  EXPECT_THAT(first->name(), StartsWith("projects/p/subscriptions/"));
  EXPECT_NE(first->name(), second->name());
  EXPECT_TRUE(broker_.subscriptions()->Get(first->name()).ok());
  subscription_.set_topic("nowhere");
  ExpectInvalid(broker_.subscriptions()->Create(subscription_).status(), "nowhere");
}

TEST_F(BrokerAdminTest, ADetachedSubscriptionHasNoMessagesAndCannotBeReadAnyMore) {
  subscription_.set_retain_acked_messages(true);
  Create();
  Publish("a");
  EXPECT_THAT(Pull(), ElementsAre("a"));
  Publish("b");
  pb::StreamingPullRequest open;
  open.set_subscription(kSub);
  open.set_stream_ack_deadline_seconds(60);
  class Ignore final : public Listener {
    void Wake() override {}
  };
  const auto stream = broker_.pulling()->OpenStream(open, std::make_shared<Ignore>()).value();
  ASSERT_TRUE(broker_.subscriptions()->Detach(kSub).ok());
  EXPECT_TRUE(broker_.subscriptions()->Get(kSub)->detached());
  EXPECT_EQ(broker_.subscriptions()->Get(kSub)->topic(), kTopic);
  ExpectError(TryPull().status(), absl::StatusCode::kFailedPrecondition, "detached");
  ExpectError(stream.Take().status(), absl::StatusCode::kFailedPrecondition, "detached");
  stream.Close();
  Publish("c");
  EXPECT_EQ(broker_.Stats().at(0).counters.backlog, 0);
  EXPECT_EQ(broker_.Stats().at(0).counters.leased, 0);
  pb::ListTopicSubscriptionsRequest list;
  list.set_topic(kTopic);
  EXPECT_THAT(broker_.topics()->ListSubscriptions(list)->subscriptions(), IsEmpty());
  ExpectError(SeekBack(absl::Hours(1)), absl::StatusCode::kFailedPrecondition, "detached");
  ExpectError(TakeSnapshot("").status(), absl::StatusCode::kFailedPrecondition, "detached");
  EXPECT_TRUE(broker_.subscriptions()->Delete(kSub).ok());
  EXPECT_EQ(broker_.subscriptions()->Detach(kSub).code(), absl::StatusCode::kNotFound);
}

TEST_F(BrokerAdminTest, ASnapshotWithoutANameIsGivenOne) {
  Create();
  const auto first = TakeSnapshot("");
  const auto second = TakeSnapshot("");
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_THAT(first->name(), StartsWith("projects/p/snapshots/"));
  EXPECT_NE(first->name(), second->name());
  EXPECT_TRUE(broker_.snapshots()->Get(first->name()).ok());
}

TEST_F(BrokerAdminTest, ASubscriptionOfADeletedTopicSeeksToNoSnapshotNotEvenOfAnotherDeletedTopic) {
  Create();
  pb::Topic other;
  other.set_name("projects/p/topics/other");
  ASSERT_TRUE(broker_.topics()->Create(other).ok());
  pb::Subscription elsewhere;
  elsewhere.set_name("projects/p/subscriptions/elsewhere");
  elsewhere.set_topic(other.name());
  ASSERT_TRUE(broker_.subscriptions()->Create(elsewhere).ok());
  Publish("a");
  const auto before = TakeSnapshot("");
  ASSERT_TRUE(broker_.topics()->Delete(kTopic).ok());
  ASSERT_TRUE(broker_.topics()->Delete(other.name()).ok());
  const auto after = TakeSnapshot("");
  ASSERT_TRUE(before.ok() && after.ok()) << before.status() << after.status();
  for (const auto& snapshot : {before, after}) {
    for (const std::string& name : {std::string(kSub), elsewhere.name()}) {
      pb::SeekRequest seek;
      seek.set_subscription(name);
      seek.set_snapshot(snapshot->name());
      ExpectError(broker_.snapshots()->Seek(seek), absl::StatusCode::kFailedPrecondition,
                  "of its own topic");
    }
  }
}

TEST_F(BrokerAdminTest, ASnapshotLivesSevenDaysLessTheAgeOfItsBacklog) {
  subscription_.mutable_message_retention_duration()->set_seconds(31 * kDay);
  Create();
  EXPECT_EQ(TakeSnapshot("")->expire_time().seconds(), absl::ToUnixSeconds(now_) + 7 * kDay);
  Publish("a");
  now_ += absl::Hours(72);
  EXPECT_EQ(TakeSnapshot("")->expire_time().seconds(), absl::ToUnixSeconds(now_) + 4 * kDay);
  now_ += absl::Hours(95);
  EXPECT_TRUE(TakeSnapshot("").ok());
  now_ += absl::Seconds(1);
  ExpectError(TakeSnapshot("").status(), absl::StatusCode::kFailedPrecondition, "within an hour");
}

TEST_F(BrokerAdminTest, TheLabelsAndTheEndOfASnapshotAreUpdated) {
  Create();
  const pb::Snapshot snapshot = TakeSnapshot("projects/p/snapshots/snap").value();
  pb::UpdateSnapshotRequest request;
  request.mutable_snapshot()->set_name(snapshot.name());
  ExpectInvalid(broker_.snapshots()->Update(request).status(), "update_mask");
  request.mutable_update_mask()->add_paths("labels");
  (*request.mutable_snapshot()->mutable_labels())["kind"] = "test";
  EXPECT_EQ(broker_.snapshots()->Update(request)->labels().at("kind"), "test");
  EXPECT_EQ(broker_.snapshots()->Get(snapshot.name())->expire_time().seconds(),
            snapshot.expire_time().seconds());
  request.mutable_update_mask()->set_paths(0, "expire_time");
  for (const int64_t seconds : {int64_t{0}, 7 * kDay + 1}) {
    request.mutable_snapshot()->mutable_expire_time()->set_seconds(absl::ToUnixSeconds(now_) +
                                                                   seconds);
    ExpectInvalid(broker_.snapshots()->Update(request).status(), "7 days");
  }
  request.mutable_snapshot()->mutable_expire_time()->set_seconds(absl::ToUnixSeconds(now_) + 60);
  request.mutable_snapshot()->mutable_expire_time()->set_nanos(1'000'000'000);
  ExpectInvalid(broker_.snapshots()->Update(request).status(), "expire_time");
  request.mutable_snapshot()->mutable_expire_time()->set_nanos(0);
  EXPECT_TRUE(broker_.snapshots()->Update(request).ok());
  now_ += absl::Seconds(60);
  broker_.Tick();
  EXPECT_EQ(broker_.snapshots()->Get(snapshot.name()).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(broker_.snapshots()->Update(request).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(BrokerAdminTest, ANewSubscriptionSeeksBackIntoWhatItsTopicRetains) {
  topic_.mutable_message_retention_duration()->set_seconds(10 * kDay);
  ASSERT_TRUE(broker_.topics()->Create(topic_).ok());
  Publish("a");
  now_ += absl::Hours(24 * 2);
  Publish("b");
  now_ += absl::Hours(24 * 7 + 12);  // more than a subscription retains by itself
  const auto created = broker_.subscriptions()->Create(subscription_);
  EXPECT_EQ(created->topic_message_retention_duration().seconds(), 10 * kDay);
  EXPECT_THAT(Pull(), IsEmpty());
  ASSERT_TRUE(SeekBack(absl::Hours(24 * 8)).ok());
  EXPECT_THAT(Pull(), ElementsAre("b"));
  ASSERT_TRUE(SeekBack(absl::Hours(24 * 10)).ok());
  EXPECT_THAT(Pull(), ElementsAre("a", "b"));
  now_ += absl::Hours(12);
  broker_.Tick();
  EXPECT_EQ(broker_.Stats().at(0).counters.backlog + broker_.Stats().at(0).counters.leased, 1);
  ASSERT_TRUE(SeekBack(absl::Hours(24 * 10)).ok());
  EXPECT_THAT(Pull(), ElementsAre("b"));
}

TEST_F(BrokerAdminTest, TheRetentionOfATopicIsChangedAndGoesWithIt) {
  Create();
  EXPECT_FALSE(broker_.subscriptions()->Get(kSub)->has_topic_message_retention_duration());
  topic_.mutable_message_retention_duration()->set_seconds(600);
  EXPECT_TRUE(UpdateTopic("message_retention_duration").ok());
  EXPECT_EQ(broker_.subscriptions()->Get(kSub)->topic_message_retention_duration().seconds(), 600);
  topic_.mutable_message_retention_duration()->set_seconds(599);
  ExpectInvalid(UpdateTopic("message_retention_duration").status(), "600");
  topic_.clear_message_retention_duration();
  EXPECT_TRUE(UpdateTopic("message_retention_duration").ok());
  EXPECT_FALSE(broker_.subscriptions()->Get(kSub)->has_topic_message_retention_duration());
  topic_.mutable_message_retention_duration()->set_seconds(600);
  EXPECT_TRUE(UpdateTopic("message_retention_duration").ok());
  EXPECT_TRUE(broker_.topics()->Delete(kTopic).ok());
  EXPECT_FALSE(broker_.subscriptions()->Get(kSub)->has_topic_message_retention_duration());
}

TEST_F(BrokerAdminTest, AnUnusedSubscriptionExpiresAfterThirtyOneDaysUnlessItSaysOtherwise) {
  Create();
  EXPECT_EQ(broker_.subscriptions()->Get(kSub)->expiration_policy().ttl().seconds(), 31 * kDay);
  subscription_.mutable_expiration_policy();
  const auto never = Update("expiration_policy");
  EXPECT_TRUE(never->has_expiration_policy());
  EXPECT_FALSE(never->expiration_policy().has_ttl());
  subscription_.mutable_expiration_policy()->mutable_ttl()->set_seconds(kDay - 1);
  ExpectInvalid(Update("expiration_policy").status(), "86400");
}

TEST_F(BrokerAdminTest, ADeadLetterTopicMustExist) {
  ASSERT_TRUE(broker_.topics()->Create(topic_).ok());
  subscription_.mutable_dead_letter_policy()->set_dead_letter_topic("projects/p/topics/dead");
  ExpectError(broker_.subscriptions()->Create(subscription_).status(), absl::StatusCode::kNotFound,
              "projects/p/topics/dead");
  pb::Subscription plain = subscription_;
  plain.clear_dead_letter_policy();
  ASSERT_TRUE(broker_.subscriptions()->Create(plain).ok());
  ExpectError(Update("dead_letter_policy").status(), absl::StatusCode::kNotFound, "dead");
  pb::Topic dead;
  dead.set_name("projects/p/topics/dead");
  ASSERT_TRUE(broker_.topics()->Create(dead).ok());
  EXPECT_TRUE(Update("dead_letter_policy").ok());
}

TEST_F(BrokerAdminTest, LabelsAreLimited) {
  const auto create = [this](const std::string& key, const std::string& value) {
    pb::Topic topic = topic_;
    (*topic.mutable_labels())[key] = value;
    return broker_.topics()->Create(topic).status();
  };
  ExpectInvalid(create("", "v"), "begin with a lower-case letter");
  ExpectInvalid(create("1a", "v"), "begin with a lower-case letter");
  ExpectInvalid(create("Key", "v"), "begin with a lower-case letter");
  ExpectInvalid(create("a.b", "v"), "only lower-case letters");
  ExpectInvalid(create("a", "V"), "only lower-case letters");
  ExpectInvalid(create(std::string(64, 'a'), "v"), "64 characters, at most 63");
  ExpectInvalid(create("a", std::string(64, 'v')), "64 characters, at most 63");
  for (int i = 0; i < 65; ++i) (*topic_.mutable_labels())["k" + std::to_string(i)] = "";
  ExpectInvalid(broker_.topics()->Create(topic_).status(), "65 labels, at most 64");
  topic_.mutable_labels()->erase("k64");
  topic_.mutable_labels()->erase("k0");
  std::string wide;
  for (int i = 0; i < 63; ++i) wide += "é";
  (*topic_.mutable_labels())[wide] = "1-_" + std::string(60, 'x');
  Create();
  (*subscription_.mutable_labels())["A"] = "";
  ExpectInvalid(Update("labels").status(), "lower-case");
}

TEST_F(BrokerAdminTest, PagesAreChecked) {
  Create();
  pb::ListTopicsRequest request;
  request.set_project("projects/p");
  request.set_page_size(-1);
  ExpectInvalid(broker_.topics()->List(request).status(), "page_size");
  request.set_page_size(1'000'000);
  EXPECT_EQ(broker_.topics()->List(request)->topics_size(), 1);
  request.set_page_token("nonsense");
  ExpectInvalid(broker_.topics()->List(request).status(), "page_token");
  pb::ListSubscriptionsRequest subscriptions;
  subscriptions.set_project("projects/p");
  subscriptions.set_page_token(kTopic);
  ExpectInvalid(broker_.subscriptions()->List(subscriptions).status(), "page_token");
}

TEST_F(BrokerAdminTest, LimitsAreRefusedInTheWordsOfTheService) {
  pb::PublishRequest request;
  request.set_topic(kTopic);
  for (int i = 0; i < 1001; ++i) request.add_messages()->set_data("x");
  ExpectInvalid(broker_.publishing()->Publish(request).status(),
                "The value for message_count is too large. You passed 1001 in the request, but the "
                "maximum value is 1000.");
  pb::AcknowledgeRequest ack;
  ack.set_subscription(kSub);
  ack.add_ack_ids(std::string(kMaxAckRequestBytes, 'x'));
  ExpectInvalid(broker_.pulling()->Acknowledge(ack),
                "Request payload size exceeds the limit: 524288 bytes.");
}

}  // namespace
}  // namespace postbox::emulator

// Every limit of the service: a value at the limit is OK, one beyond is refused with a message.
#include "worker/emulator/rules/validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "worker/emulator/rules/service_limits.h"

namespace postbox::emulator {
namespace {

namespace pb = google::pubsub::v1;
using ::testing::HasSubstr;

void ExpectInvalid(const absl::Status& status, const std::string& part) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(part));
}

pb::PublishRequest Request(int messages = 1) {
  pb::PublishRequest request;
  request.set_topic("projects/p/topics/topic");
  for (int i = 0; i < messages; ++i) request.add_messages()->set_data("x");
  return request;
}

TEST(Validation, NamesFollowTheRules) {
  EXPECT_TRUE(CheckName("projects/p/topics/a-b_c.d~e+f%1", "topics").ok());
  EXPECT_TRUE(CheckName("projects/p/topics/" + std::string(255, 'a'), "topics").ok());
  ExpectInvalid(CheckName("projects/p/topics/" + std::string(256, 'a'), "topics"), "255");
  ExpectInvalid(CheckName("projects/p/topics/ab", "topics"), "3 to 255");
  ExpectInvalid(CheckName("projects/p/topics/1abc", "topics"), "letter");
  ExpectInvalid(CheckName("projects/p/topics/goog-x", "topics"), "goog");
  ExpectInvalid(CheckName("projects/p/topics/a b c", "topics"), "letters, digits");
  ExpectInvalid(CheckName("projects/p/subscriptions/abc", "topics"), "projects/PROJECT/topics/ID");
  ExpectInvalid(CheckName("topic", "topics"), "projects/PROJECT/topics/ID");
  ExpectInvalid(CheckProject("p"), "projects/PROJECT");
}

TEST(Validation, APublishRequestHasOneToAThousandMessages) {
  EXPECT_TRUE(CheckPublish(Request(1000)).ok());
  ExpectInvalid(CheckPublish(Request(1001)), "1000");
  ExpectInvalid(CheckPublish(Request(0)), "at least one message");
}

TEST(Validation, APublishRequestHasTenMillionBytesAtMost) {
  pb::PublishRequest request = Request();
  request.mutable_messages(0)->set_data(std::string(9'999'900, 'x'));
  const size_t rest = kMaxPublishBytes - request.ByteSizeLong();
  request.mutable_messages(0)->mutable_data()->append(rest, 'x');
  ASSERT_EQ(request.ByteSizeLong(), kMaxPublishBytes);
  EXPECT_TRUE(CheckPublish(request).ok());
  request.mutable_messages(0)->mutable_data()->push_back('x');
  ExpectInvalid(CheckPublish(request), "10000000");
}

TEST(Validation, AMessageNeedsDataOrAnAttribute) {
  pb::PublishRequest request = Request();
  request.mutable_messages(0)->clear_data();
  ExpectInvalid(CheckPublish(request), "data or at least one attribute");
  (*request.mutable_messages(0)->mutable_attributes())["a"] = "";
  EXPECT_TRUE(CheckPublish(request).ok());
}

TEST(Validation, OrderingKeysAreLimitedAndNotMixed) {
  pb::PublishRequest request = Request(2);
  for (auto& message : *request.mutable_messages())
    message.set_ordering_key(std::string(1024, 'k'));
  EXPECT_TRUE(CheckPublish(request).ok());
  for (auto& message : *request.mutable_messages())
    message.set_ordering_key(std::string(1025, 'k'));
  ExpectInvalid(CheckPublish(request), "1024");
  request.mutable_messages(0)->set_ordering_key("one");
  request.mutable_messages(1)->set_ordering_key("two");
  ExpectInvalid(CheckPublish(request), "one ordering key");
  request.mutable_messages(1)->set_ordering_key("");
  ExpectInvalid(CheckPublish(request), "one ordering key");
}

TEST(Validation, AttributesAreLimitedInNumberAndSize) {
  pb::PublishRequest request = Request();
  auto& attributes = *request.mutable_messages(0)->mutable_attributes();
  for (int i = 0; i < 100; ++i) attributes["a" + std::to_string(i)] = std::string(1024, 'v');
  EXPECT_TRUE(CheckPublish(request).ok());
  attributes["one more"] = "";
  ExpectInvalid(CheckPublish(request), "at most 100");
  attributes.clear();
  attributes[std::string(256, 'k')] = "";
  EXPECT_TRUE(CheckPublish(request).ok());
  attributes.clear();
  attributes[std::string(257, 'k')] = "";
  ExpectInvalid(CheckPublish(request), "at most 256");
  attributes.clear();
  attributes["a"] = std::string(1025, 'v');
  ExpectInvalid(CheckPublish(request), "at most 1024");
  attributes.clear();
  attributes[""] = "a";
  ExpectInvalid(CheckPublish(request), "must not be empty");
  attributes.clear();
  attributes["google"] = "";
  ExpectInvalid(CheckPublish(request), "reserved");
  attributes.clear();
  attributes["googclient_traceparent"] = "";
  EXPECT_TRUE(CheckPublish(request).ok());
}

TEST(Validation, AnAckRequestIsLimitedInBytes) {
  pb::AcknowledgeRequest request;
  request.set_subscription("projects/p/subscriptions/sub");
  ExpectInvalid(CheckAcknowledge(request), "at least one ack id");
  while (request.ByteSizeLong() + 191 <= kMaxAckRequestBytes) {
    request.add_ack_ids(std::string(188, 'i'));
  }
  EXPECT_TRUE(CheckAcknowledge(request).ok());
  request.add_ack_ids(std::string(188, 'i'));
  ExpectInvalid(CheckAcknowledge(request), "524288");
}

TEST(Validation, AnAckDeadlineIsModifiedToSixHundredSecondsAtMost) {
  pb::ModifyAckDeadlineRequest request;
  request.set_subscription("projects/p/subscriptions/sub");
  request.add_ack_ids("id");
  for (const int seconds : {0, 600}) {
    request.set_ack_deadline_seconds(seconds);
    EXPECT_TRUE(CheckModifyAckDeadline(request).ok());
  }
  for (const int seconds : {-1, 601}) {
    request.set_ack_deadline_seconds(seconds);
    ExpectInvalid(CheckModifyAckDeadline(request), "0 to 600");
  }
}

TEST(Validation, SubscriptionsHaveDefaultsAndRanges) {
  pb::Subscription good;
  good.set_name("projects/p/subscriptions/sub");
  good.mutable_retry_policy();
  good.mutable_dead_letter_policy()->set_dead_letter_topic("projects/p/topics/dlq");
  SetDefaults(&good);
  EXPECT_TRUE(CheckSubscription(good).ok());
  EXPECT_EQ(good.ack_deadline_seconds(), 10);
  EXPECT_EQ(good.message_retention_duration().seconds(), 7 * 86400);
  EXPECT_EQ(good.retry_policy().minimum_backoff().seconds(), 10);
  EXPECT_EQ(good.retry_policy().maximum_backoff().seconds(), 600);
  EXPECT_EQ(good.dead_letter_policy().max_delivery_attempts(), 5);

  pb::Subscription bad = good;
  bad.set_ack_deadline_seconds(9);
  ExpectInvalid(CheckSubscription(bad), "10 to 600");
  bad = good;
  bad.set_ack_deadline_seconds(601);
  ExpectInvalid(CheckSubscription(bad), "10 to 600");
  bad = good;
  bad.mutable_message_retention_duration()->set_seconds(599);
  ExpectInvalid(CheckSubscription(bad), "message_retention_duration");
  bad = good;
  bad.mutable_dead_letter_policy()->set_max_delivery_attempts(4);
  ExpectInvalid(CheckSubscription(bad), "5 to 100");
  bad = good;
  bad.mutable_dead_letter_policy()->set_max_delivery_attempts(101);
  ExpectInvalid(CheckSubscription(bad), "5 to 100");
  bad = good;
  bad.mutable_retry_policy()->mutable_maximum_backoff()->set_seconds(601);
  ExpectInvalid(CheckSubscription(bad), "0 to 600");
  bad = good;
  bad.mutable_retry_policy()->mutable_maximum_backoff()->set_seconds(1);
  ExpectInvalid(CheckSubscription(bad), "minimum_backoff");
  bad = good;
  bad.set_filter("attributes:a");
  EXPECT_TRUE(CheckSubscription(bad).ok());
  bad.set_filter("attributes:a AND");
  ExpectInvalid(CheckSubscription(bad), "filter");
}

TEST(Validation, DurationsAreValidAndWithinTheirRangesToTheNano) {
  pb::Subscription good;
  good.set_name("projects/p/subscriptions/sub");
  good.mutable_retry_policy();
  SetDefaults(&good);
  const auto field = [](pb::Subscription* of, int number) {
    if (number == 0) return of->mutable_message_retention_duration();
    if (number == 1) return of->mutable_retry_policy()->mutable_maximum_backoff();
    return of->mutable_expiration_policy()->mutable_ttl();
  };
  const int64_t most[] = {kMaxRetentionSeconds, kMaxBackoffSeconds, 315'576'000'000};
  for (int number = 0; number < 3; ++number) {
    pb::Subscription changed = good;
    google::protobuf::Duration* duration = field(&changed, number);
    duration->set_seconds(most[number]);
    EXPECT_TRUE(CheckSubscription(changed).ok()) << number;
    duration->set_nanos(1);
    ExpectInvalid(CheckSubscription(changed), "and 1 nanos");
    duration->set_seconds(most[number] - 1);
    duration->set_nanos(999'999'999);
    EXPECT_TRUE(CheckSubscription(changed).ok()) << number;
    for (const int nanos : {-1, 1'000'000'000}) {
      duration->set_nanos(nanos);
      ExpectInvalid(CheckSubscription(changed), "0 to 999999999 nanos");
    }
  }
}

TEST(Validation, TimesAreOfTheYears1To9999) {
  google::protobuf::Timestamp time;
  for (const int64_t seconds : {-62'135'596'800, int64_t{0}, 253'402'300'799}) {
    time.set_seconds(seconds);
    time.set_nanos(999'999'999);
    EXPECT_TRUE(CheckTime(time, "time").ok()) << seconds;
    for (const int nanos : {-1, 1'000'000'000}) {
      time.set_nanos(nanos);
      ExpectInvalid(CheckTime(time, "time"), "time must be");
    }
  }
  for (const int64_t seconds : {-62'135'596'801, 253'402'300'800}) {
    time.set_seconds(seconds);
    time.set_nanos(0);
    ExpectInvalid(CheckTime(time, "expire_time"), "expire_time must be");
  }
}

TEST(Validation, OnlyTheFirstRequestOfAStreamSaysWhatTheStreamIs) {
  pb::StreamingPullRequest first;
  ExpectInvalid(CheckStreamingPull(first, true), "projects/PROJECT/subscriptions/ID");
  first.set_subscription("projects/p/subscriptions/sub");
  ExpectInvalid(CheckStreamingPull(first, true), "10 to 600");
  first.set_stream_ack_deadline_seconds(60);
  first.set_max_outstanding_messages(10);
  first.set_protocol_version(1);
  EXPECT_TRUE(CheckStreamingPull(first, true).ok());
  ExpectInvalid(CheckStreamingPull(first, false), "subscription");

  pb::StreamingPullRequest next;
  EXPECT_TRUE(CheckStreamingPull(next, false).ok());
  next.set_stream_ack_deadline_seconds(9);
  ExpectInvalid(CheckStreamingPull(next, false), "10 to 600");
  next.set_stream_ack_deadline_seconds(20);
  EXPECT_TRUE(CheckStreamingPull(next, false).ok());
  next.set_max_outstanding_bytes(1);
  ExpectInvalid(CheckStreamingPull(next, false), "max_outstanding");
  next.clear_max_outstanding_bytes();
  next.set_protocol_version(1);
  ExpectInvalid(CheckStreamingPull(next, false), "protocol_version");
  next.clear_protocol_version();
  next.add_modify_deadline_ack_ids("id");
  ExpectInvalid(CheckStreamingPull(next, false), "modify_deadline_seconds");
}

}  // namespace
}  // namespace postbox::emulator

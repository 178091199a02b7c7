#include "worker/emulator/broker/publish_quotas.h"

#include <gtest/gtest.h>

namespace postbox::emulator {
namespace {

class PublishQuotasTest : public testing::Test {
 protected:
  bool Take(const std::string& key, size_t bytes, int messages = 2) {
    const absl::Status status = limit_.Take("topic", key, bytes, messages, now_);
    EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kResourceExhausted) << status;
    return status.ok();
  }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  PublishQuotas limit_{{.key = 1000}};
};

TEST_F(PublishQuotasTest, AKeyMayPublishTheBytesOfOneSecondAtOnceAndThenAtThatRate) {
  EXPECT_TRUE(Take("a", 600));
  EXPECT_TRUE(Take("a", 400));
  EXPECT_FALSE(Take("a", 1));
  now_ += absl::Milliseconds(500);
  EXPECT_FALSE(Take("a", 501)) << "a refused request takes nothing";
  EXPECT_TRUE(Take("a", 500));
  EXPECT_FALSE(Take("a", 1));
  now_ += absl::Seconds(100);
  EXPECT_TRUE(Take("a", 1000));
  EXPECT_FALSE(Take("a", 1)) << "what was not used is not saved for longer than a second";
}

TEST_F(PublishQuotasTest, KeysAndTopicsDoNotShareTheLimitAndAMessageWithoutAKeyHasNone) {
  EXPECT_TRUE(Take("a", 1000));
  EXPECT_TRUE(Take("b", 1000));
  EXPECT_TRUE(limit_.Take("other", "a", 1000, 2, now_).ok());
  EXPECT_TRUE(Take("", 5000));
  EXPECT_TRUE(Take("", 5000));
}

TEST_F(PublishQuotasTest, ASingleMessageOfAnySizeIsTakenFromAFullBucketAndLeavesADebt) {
  EXPECT_FALSE(Take("a", 3000, 2)) << "several messages can be sent one by one";
  EXPECT_TRUE(Take("a", 3000, 1));
  now_ += absl::Seconds(2);
  EXPECT_FALSE(Take("a", 1, 1));
  now_ += absl::Seconds(1);
  EXPECT_TRUE(Take("a", 1000, 1));
}

TEST_F(PublishQuotasTest, KeysThatAreQuietAreForgotten) {
  for (int i = 0; i < 10'000; ++i) {
    EXPECT_TRUE(Take("key-" + std::to_string(i), 10));
    now_ += absl::Milliseconds(20);
  }
  EXPECT_LE(limit_.buckets(), 1024u);
}

TEST_F(PublishQuotasTest, ATopicAndAllTopicsTogetherHaveLimitsOfTheirOwn) {
  PublishQuotas limits({.all = 2500, .topic = 1000});
  const auto take = [&](const char* topic, size_t bytes) {
    return limits.Take(topic, "", bytes, 2, now_).code();
  };
  EXPECT_EQ(take("a", 1000), absl::StatusCode::kOk);
  EXPECT_EQ(take("a", 1), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(take("b", 1000), absl::StatusCode::kOk);
  EXPECT_EQ(take("c", 501), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(take("c", 500), absl::StatusCode::kOk) << "what was refused has taken nothing";
  now_ += absl::Milliseconds(100);
  EXPECT_EQ(take("a", 100), absl::StatusCode::kOk);
}

TEST_F(PublishQuotasTest, ARefusalSaysWhoHasPublishedTooMuch) {
  PublishQuotas limits({.all = 30, .topic = 20, .key = 10});
  const auto text = [&](const char* topic, const char* key, size_t bytes) {
    return std::string(limits.Take(topic, key, bytes, 2, now_).message());
  };
  EXPECT_EQ(text("t", "k", 11), "the ordering key has exceeded 10 bytes a second (ordering_key=k)");
  EXPECT_EQ(text("t", "", 21), "the topic has exceeded 20 bytes a second (topic=t)");
  EXPECT_EQ(text("t", "", 31), "the publishers have exceeded 30 bytes a second (all topics)");
}

TEST_F(PublishQuotasTest, WithoutALimitNothingIsRefused) {
  PublishQuotas none({});
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(none.Take("topic", "a", 10'000'000, 5, now_).ok());
}

}  // namespace
}  // namespace postbox::emulator

#include "worker/emulator/key_throughput.h"

#include <gtest/gtest.h>

namespace postbox::emulator {
namespace {

class KeyThroughputTest : public testing::Test {
 protected:
  bool Take(const std::string& key, size_t bytes, int messages = 2) {
    const absl::Status status = limit_.Take("topic", key, bytes, messages, now_);
    EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kResourceExhausted) << status;
    return status.ok();
  }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  KeyThroughput limit_{1000};
};

TEST_F(KeyThroughputTest, AKeyMayPublishTheBytesOfOneSecondAtOnceAndThenAtThatRate) {
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

TEST_F(KeyThroughputTest, KeysAndTopicsDoNotShareTheLimitAndAMessageWithoutAKeyHasNone) {
  EXPECT_TRUE(Take("a", 1000));
  EXPECT_TRUE(Take("b", 1000));
  EXPECT_TRUE(limit_.Take("other", "a", 1000, 2, now_).ok());
  EXPECT_TRUE(Take("", 5000));
  EXPECT_TRUE(Take("", 5000));
}

TEST_F(KeyThroughputTest, ASingleMessageOfAnySizeIsTakenFromAFullBucketAndLeavesADebt) {
  EXPECT_FALSE(Take("a", 3000, 2)) << "several messages can be sent one by one";
  EXPECT_TRUE(Take("a", 3000, 1));
  now_ += absl::Seconds(2);
  EXPECT_FALSE(Take("a", 1, 1));
  now_ += absl::Seconds(1);
  EXPECT_TRUE(Take("a", 1000, 1));
}

TEST_F(KeyThroughputTest, KeysThatAreQuietAreForgotten) {
  for (int i = 0; i < 10'000; ++i) {
    EXPECT_TRUE(Take("key-" + std::to_string(i), 10));
    now_ += absl::Milliseconds(20);
  }
  EXPECT_LE(limit_.buckets(), 1024u);
}

TEST_F(KeyThroughputTest, WithoutALimitNothingIsRefused) {
  KeyThroughput none(0);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(none.Take("topic", "a", 10'000'000, 5, now_).ok());
}

}  // namespace
}  // namespace postbox::emulator

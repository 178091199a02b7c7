#include "worker/publisher/policy/event_retry.h"

#include <gtest/gtest.h>

namespace postbox::publisher {
namespace {

using namespace std::chrono_literals;

constexpr pubsub::BackoffPolicy kBackoff{1s, 2.0, 10s};

TEST(EventRetryTest, ARefusedEventIsAttemptedUpToMaxAttemptsWithABackoff) {
  const double delays[] = {1, 2, 4, 8, 10, 10};
  for (int attempts = 0; attempts < 6; ++attempts) {
    const EventRetry retry = RetryOf(true, attempts, 7, kBackoff, 1);
    EXPECT_EQ(retry.counted, 1);
    EXPECT_FALSE(retry.failed());
    EXPECT_DOUBLE_EQ(retry.seconds, delays[attempts]);
  }
  EXPECT_TRUE(RetryOf(true, 6, 7, kBackoff, 1).failed());
  EXPECT_TRUE(RetryOf(true, 0, 1, kBackoff, 1).failed());
}

TEST(EventRetryTest, WhatGetsNoAnswerIsNoAttemptAndNeverFails) {
  const EventRetry retry = RetryOf(false, 100, 5, kBackoff, 1);
  EXPECT_EQ(retry.counted, 0);
  EXPECT_DOUBLE_EQ(retry.seconds, 10);
  EXPECT_DOUBLE_EQ(RetryOf(false, 0, 1, kBackoff, 1).seconds, 1);
}

TEST(EventRetryTest, TheJitterTakesHalfOfTheDelayAtMost) {
  EXPECT_DOUBLE_EQ(RetryOf(true, 0, 5, kBackoff, 0).seconds, 0.5);
}

}  // namespace
}  // namespace postbox::publisher

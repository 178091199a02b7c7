#include "worker/puller/pull_status.h"

#include <gtest/gtest.h>

namespace postbox::puller {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(PullStatusTest, WhatChangesIsReportedOnceASecondAndLifeEveryFiveMinutes) {
  PullStatus status;
  PullStatus::TimePoint now{std::chrono::hours(1)};
  EXPECT_LE(status.NextReport(), now);
  status.Take(now);
  EXPECT_EQ(status.NextReport(), now + PullStatus::kSignOfLife);
  status.Succeeded({.applied = 2});
  EXPECT_EQ(status.NextReport(), now + PullStatus::kInterval);
  status.Succeeded({.applied = 3, .duplicates = 1});
  now += seconds(1);
  const StatusNumbers numbers = status.Take(now);
  EXPECT_EQ(numbers.applied, 5);
  EXPECT_EQ(numbers.duplicates, 1);
  status.Disable();
  status.GaveUp();
  EXPECT_EQ(status.NextReport(), PullStatus::TimePoint::max());
}

TEST(PullStatusTest, ItIsRetryingFromTheFirstFailureUntilASuccess) {
  PullStatus status;
  PullStatus::TimePoint now{std::chrono::hours(1)};
  status.Failed("first", milliseconds(100), now);
  now += seconds(2);
  status.Failed("second", milliseconds(400), now);
  now += seconds(1);
  StatusNumbers numbers = status.Take(now);
  EXPECT_EQ(numbers.failures, 2);
  EXPECT_EQ(numbers.retrying_for_ms, 3000);
  EXPECT_EQ(numbers.next_try_in_ms, -600);
  EXPECT_EQ(numbers.last_error_before_ms, 1000);
  EXPECT_EQ(numbers.last_error, "second");
  status.Succeeded({});
  numbers = status.Take(now);
  EXPECT_EQ(numbers.retrying_for_ms, std::nullopt);
  EXPECT_EQ(numbers.last_error, "second");
}

}  // namespace
}  // namespace postbox::puller

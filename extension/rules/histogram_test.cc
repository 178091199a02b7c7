#include "extension/rules/histogram.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace postbox {
namespace {

TEST(HistogramTest, ABucketHasWhatIsNotAboveItsEnd) {
  EXPECT_EQ(BucketOf(0), 0u);
  EXPECT_EQ(BucketOf(1'000), 0u);
  EXPECT_EQ(BucketOf(1'001), 1u);
  EXPECT_EQ(BucketOf(300'000'000), kBuckets - 2);
  EXPECT_EQ(BucketOf(300'000'001), kBuckets - 1);
}

TEST(HistogramTest, TheNamesOfTheBucketsAreTheirEndsInSeconds) {
  for (std::size_t i = 0; i < kBucketMicros.size(); ++i) {
    EXPECT_DOUBLE_EQ(std::atof(kBucketNames[i]) * 1e6, static_cast<double>(kBucketMicros[i]));
  }
  EXPECT_STREQ(kBucketNames.back(), "+Inf");
}

TEST(HistogramTest, WhatIsCollectedFirstCountsAsWhatIsAddedAtOnce) {
  Histogram one{}, other{};
  Durations durations;
  for (const std::int64_t duration : {5, 2'000, 2'100, 400'000'000}) {
    one.Observe(duration);
    durations.Observe(duration);
  }
  other.Add(durations);
  for (std::size_t i = 0; i < kBuckets; ++i) {
    EXPECT_EQ(Value(one.counts[i]), Value(other.counts[i]));
  }
  EXPECT_EQ(Value(other.micros), 400'004'105u);
  EXPECT_EQ(Value(one.micros), Value(other.micros));
  EXPECT_EQ(Value(one.counts[1]), 2u);
}

TEST(HistogramTest, ADurationBelowZeroCountsAsZero) {
  Histogram histogram{};
  histogram.Observe(-7);
  Durations durations;
  durations.Observe(-7);
  histogram.Add(durations);
  EXPECT_EQ(Value(histogram.counts[0]), 2u);
  EXPECT_EQ(Value(histogram.micros), 0u);
}

}  // namespace
}  // namespace postbox

#include "worker/puller/apply_times.h"

#include <gtest/gtest.h>

namespace postbox::puller {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(ApplyTimesTest, PercentilesAreAtMostAFifthTooLong) {
  ApplyTimes times;
  const ApplyTimes::TimePoint now{std::chrono::hours(5)};
  EXPECT_FALSE(times.Percentile(0.5, now).has_value());
  for (int i = 0; i < 980; ++i) times.Add(microseconds(900), now);
  for (int i = 0; i < 20; ++i) times.Add(milliseconds(70), now);
  EXPECT_GE(times.Percentile(0.5, now), microseconds(900));
  EXPECT_LE(times.Percentile(0.5, now), microseconds(1080));
  EXPECT_GE(times.Percentile(0.99, now), milliseconds(70));
  EXPECT_LE(times.Percentile(0.99, now), milliseconds(84));
}

TEST(ApplyTimesTest, AMinuteIsRemembered) {
  ApplyTimes times;
  ApplyTimes::TimePoint now{std::chrono::hours(5)};
  times.Add(seconds(1), now);
  now += seconds(50);
  times.Add(milliseconds(1), now);
  EXPECT_GE(times.Percentile(0.99, now), seconds(1));
  now += seconds(10);
  EXPECT_LT(times.Percentile(0.99, now), milliseconds(2));
  now += seconds(60);
  EXPECT_FALSE(times.Percentile(0.5, now).has_value());
}

TEST(ApplyTimesTest, TheShortestAndTheLongestTimesAreCounted) {
  ApplyTimes times;
  const ApplyTimes::TimePoint now{std::chrono::hours(5)};
  times.Add(std::chrono::nanoseconds(1), now);
  EXPECT_EQ(times.Percentile(0.01, now), microseconds(1));
  times.Add(std::chrono::hours(24 * 365), now);
  EXPECT_GT(times.Percentile(0.99, now), std::chrono::hours(24 * 7));
}

}  // namespace
}  // namespace postbox::puller

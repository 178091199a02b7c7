#include "worker/puller/end_times.h"

#include <gtest/gtest.h>

namespace postbox::puller {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr EndTimes::TimePoint kSignal{std::chrono::hours(1)};

TEST(EndTimesTest, HalfOfTheTimeButTwoToFiveSecondsAreForTheEnd) {
  const auto applying = [](EndTimes::Duration time) {
    EndTimes times;
    EXPECT_TRUE(times.EndBy(kSignal + time, kSignal));
    return times.apply_until() - kSignal;
  };
  EXPECT_EQ(applying(seconds(30)), seconds(25));
  EXPECT_EQ(applying(seconds(6)), seconds(3));
  EXPECT_EQ(applying(seconds(3)), seconds(1));
  EXPECT_LE(applying(seconds(0)), seconds(0));
}

TEST(EndTimesTest, ItsPartsTakeLessThanTheEndAndAreThereIfThereIsNoTime) {
  EndTimes times;
  times.EndBy(kSignal - seconds(100), kSignal);
  EXPECT_EQ(times.cancel_time(), milliseconds(500));
  EXPECT_EQ(times.settle_time(), milliseconds(700));
  EXPECT_EQ(times.report_time(), milliseconds(200));
}

TEST(EndTimesTest, TheEndComesForwardAndIsNotPutOff) {
  EndTimes times;
  EXPECT_EQ(times.apply_until(), EndTimes::TimePoint::max());
  EXPECT_TRUE(times.EndBy(kSignal + seconds(20), kSignal));
  EXPECT_FALSE(times.EndBy(kSignal + seconds(40), kSignal));
  EXPECT_EQ(times.apply_until(), kSignal + seconds(15));
  EXPECT_TRUE(times.EndBy(kSignal + seconds(8), kSignal));
  EXPECT_EQ(times.apply_until(), kSignal + seconds(4));
}

}  // namespace
}  // namespace postbox::puller

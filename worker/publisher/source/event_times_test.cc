#include "worker/publisher/source/event_times.h"

#include <gtest/gtest.h>

namespace postbox::publisher {
namespace {

using std::chrono::microseconds;
using std::chrono::steady_clock;

constexpr std::int64_t kSecond = 1'000'000;
constexpr std::int64_t kNow = 1'790'000'000 * kSecond;

TEST(EventTimesTest, AnEventWithoutTimesIsInTimeAlways) {
  EXPECT_FALSE(EventTimes().any());
  EXPECT_EQ(TimelinessOf({}, kNow), Timeliness::kInTime);
  EXPECT_EQ(SendUntil({}, kNow, steady_clock::time_point()), steady_clock::time_point::max());
}

TEST(EventTimesTest, AnEventIsTooEarlyUntilItsTime) {
  const EventTimes times{.deliver_at = kNow + kSecond};
  EXPECT_EQ(TimelinessOf(times, kNow), Timeliness::kTooEarly);
  EXPECT_EQ(TimelinessOf(times, kNow + kSecond - 1), Timeliness::kTooEarly);
  EXPECT_EQ(TimelinessOf(times, kNow + kSecond), Timeliness::kInTime);
}

TEST(EventTimesTest, AnEventIsTooLateFromItsEndOn) {
  const EventTimes times{.expires_at = kNow + kSecond};
  EXPECT_EQ(TimelinessOf(times, kNow + kSecond - 1), Timeliness::kInTime);
  EXPECT_EQ(TimelinessOf(times, kNow + kSecond), Timeliness::kTooLate);
}

TEST(EventTimesTest, AClockThatIsSetBackMakesAnEventWaitAgain) {
  const EventTimes times{.deliver_at = kNow, .expires_at = kNow + kSecond};
  EXPECT_EQ(TimelinessOf(times, kNow + kSecond), Timeliness::kTooLate);
  EXPECT_EQ(TimelinessOf(times, kNow), Timeliness::kInTime);
  EXPECT_EQ(TimelinessOf(times, kNow - 1), Timeliness::kTooEarly);
}

// A plain INSERT can have written any times.
TEST(EventTimesTest, AnEventThatExpiresBeforeItsTimeIsTooLateAtOnce) {
  const EventTimes times{.deliver_at = kNow + 2 * kSecond, .expires_at = kNow + kSecond};
  EXPECT_EQ(TimelinessOf(times, kNow), Timeliness::kTooLate);
}

TEST(EventTimesTest, ItMayWaitToBeSentUntilItExpires) {
  const steady_clock::time_point steady(microseconds(5));
  EXPECT_EQ(SendUntil({.expires_at = kNow + kSecond}, kNow, steady),
            steady + microseconds(kSecond));
  const std::int64_t never = std::numeric_limits<std::int64_t>::max() - 1;
  EXPECT_EQ(SendUntil({.expires_at = never}, kNow, steady), steady_clock::time_point::max());
}

TEST(EventTimesTest, TheDelayIsNeverNegative) {
  EXPECT_EQ(SecondsUntil({.deliver_at = kNow + kSecond / 2}, kNow), 0.5);
  EXPECT_EQ(SecondsUntil({.deliver_at = kNow - kSecond}, kNow), 0);
}

}  // namespace
}  // namespace postbox::publisher

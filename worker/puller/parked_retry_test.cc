#include "worker/puller/parked_retry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace postbox::puller {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kNever = ParkedRetry::TimePoint::max();
constexpr ParkedAmount kMost{.keys = 10, .events = 100, .bytes = 1000};

class ParkedRetryTest : public ::testing::Test {
 protected:
  // A look that takes `took`, and counts `parked` if it is to.
  bool Look(const ParkedAmount& parked, std::optional<std::string> key = std::nullopt,
            milliseconds took = milliseconds(1)) {
    EXPECT_LE(retry_.Next(), now_);
    const bool counts = retry_.Begin(now_);
    EXPECT_EQ(retry_.Next(), kNever) << "one looks";
    now_ += took;
    ParkedStep step{.ok = true, .key = std::move(key)};
    if (counts) step.parked = parked;
    retry_.Done(step, now_);
    return counts;
  }

  ParkedRetry::TimePoint now_{hours(1)};
  ParkedRetry retry_{kMost, ""};
};

TEST_F(ParkedRetryTest, WithoutParkKeyThereIsNoLook) {
  ParkedRetry none(std::nullopt, "");
  EXPECT_EQ(none.Next(), kNever);
  none.Parked(5, now_);
  EXPECT_EQ(none.Next(), kNever);
}

TEST_F(ParkedRetryTest, ALookIsSoonIfKeysAreParkedAndSeldomIfNot) {
  Look({});
  EXPECT_EQ(retry_.Next(), now_ + ParkedRetry::kIdleInterval);
  retry_.Parked(1, now_);
  EXPECT_EQ(retry_.Next(), now_ + ParkedRetry::kInterval);
  now_ = retry_.Next();
  Look({.keys = 1, .events = 1});
  EXPECT_EQ(retry_.Next(), now_ + ParkedRetry::kInterval);
}

TEST_F(ParkedRetryTest, AfterAKeyThatWasDueTheNextLookIsAtOnce) {
  Look({.keys = 2, .events = 9}, "k");
  EXPECT_EQ(retry_.Next(), now_);
  EXPECT_FALSE(Look({}, "l")) << "it was just counted";
  EXPECT_EQ(retry_.Next(), now_);
  now_ += ParkedRetry::kInterval;
  EXPECT_TRUE(Look({}));
}

TEST_F(ParkedRetryTest, ACountThatTakesLongIsRare) {
  EXPECT_TRUE(Look({.keys = 1, .events = 1}, std::nullopt, milliseconds(500)));
  now_ += ParkedRetry::kInterval;
  EXPECT_FALSE(Look({}));
  now_ += milliseconds(9000);
  EXPECT_TRUE(Look({}));
}

TEST_F(ParkedRetryTest, WhatIsParkedDuringALookIsLookedForAtOnce) {
  retry_.Begin(now_);
  retry_.Parked(1, now_);
  retry_.Done({.ok = true, .parked = ParkedAmount()}, now_);
  EXPECT_EQ(retry_.Next(), now_);
}

TEST_F(ParkedRetryTest, AFailedLookIsRepeatedWithBackoff) {
  retry_.Begin(now_);
  const auto delay = retry_.Done({.sqlstate = "57014", .error = "too slow"}, now_);
  ASSERT_TRUE(delay);
  EXPECT_GE(*delay, milliseconds(500));
  EXPECT_EQ(retry_.Next(), now_ + *delay);
}

TEST_F(ParkedRetryTest, AtALimitThereIsAReasonUntilThereIsRoomAgain) {
  Look({.keys = 1, .events = 99});
  EXPECT_THAT(retry_.OverLimit(), IsEmpty());
  retry_.Parked(1, now_);
  EXPECT_THAT(retry_.OverLimit(), HasSubstr("max_parked_events")) << "before it is counted";
  now_ += ParkedRetry::kInterval;
  Look({.keys = 1, .events = 90});
  EXPECT_THAT(retry_.OverLimit(), HasSubstr("max_parked_events")) << "nine tenths are not room";
  now_ += ParkedRetry::kInterval;
  Look({.keys = 1, .events = 89});
  EXPECT_THAT(retry_.OverLimit(), IsEmpty());
  now_ += ParkedRetry::kInterval;
  Look({.keys = 10, .events = 10});
  EXPECT_THAT(retry_.OverLimit(), HasSubstr("max_parked_keys"));
  now_ += ParkedRetry::kInterval;
  Look({.keys = 1, .events = 1, .bytes = 1000});
  EXPECT_THAT(retry_.OverLimit(), HasSubstr("max_parked_bytes"));
}

TEST_F(ParkedRetryTest, APausedSubscriptionStaysPausedUntilItHasCounted) {
  ParkedRetry paused(kMost, "max_parked_keys is reached");
  EXPECT_THAT(paused.OverLimit(), HasSubstr("max_parked_keys"));
  EXPECT_LE(paused.Next(), now_);
  ASSERT_TRUE(paused.Begin(now_));
  paused.Done({.ok = true, .parked = ParkedAmount()}, now_);
  EXPECT_THAT(paused.OverLimit(), IsEmpty());
}

}  // namespace
}  // namespace postbox::puller

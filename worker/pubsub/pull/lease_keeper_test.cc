#include "worker/pubsub/pull/lease_keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace postbox::pubsub {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class LeaseKeeperTest : public ::testing::Test {
 protected:
  LeaseKeeper::Due TakeDue(LeaseKeeper::TimePoint now) {
    return keeper_.TakeDue(now, [this](uint64_t handle) { return !settled_.contains(handle); });
  }

  LeaseKeeper keeper_;
  std::set<uint64_t> settled_;
  LeaseKeeper::TimePoint now_{std::chrono::hours(1)};
};

TEST_F(LeaseKeeperTest, ALeaseIsExtendedFiveSecondsBeforeItsDeadline) {
  keeper_.AddConfirmed(1, now_);
  EXPECT_EQ(*keeper_.NextDue(), now_ + seconds(55));
  EXPECT_THAT(TakeDue(now_ + seconds(54)).extend, IsEmpty());
  EXPECT_THAT(TakeDue(now_ + seconds(55)).extend, ElementsAre(1));
  EXPECT_EQ(*keeper_.NextDue(), now_ + seconds(110));
}

TEST_F(LeaseKeeperTest, TheReceiptOfAMessageIsConfirmedAfterATenthOfASecond) {
  keeper_.Add(1, now_);
  keeper_.Add(2, now_ + milliseconds(30));
  EXPECT_EQ(*keeper_.NextDue(), now_ + milliseconds(100));
  EXPECT_THAT(TakeDue(now_ + milliseconds(99)).extend, IsEmpty());
  EXPECT_THAT(TakeDue(now_ + milliseconds(100)).extend, ElementsAre(1));
  EXPECT_EQ(*keeper_.NextDue(), now_ + milliseconds(130));
  EXPECT_THAT(TakeDue(now_ + milliseconds(200)).extend, ElementsAre(2));
  EXPECT_EQ(*keeper_.NextDue(), now_ + milliseconds(100) + seconds(55)) << "an extension as others";
  EXPECT_THAT(TakeDue(*keeper_.NextDue()).extend, UnorderedElementsAre(1, 2));
}

TEST_F(LeaseKeeperTest, AMessageThatIsSettledBeforeItsReceiptIsDueCostsNothing) {
  keeper_.Add(1, now_);
  keeper_.Add(2, now_);
  settled_.insert(1);
  EXPECT_EQ(keeper_.size(), 0u);
  EXPECT_THAT(TakeDue(now_ + milliseconds(100)).extend, ElementsAre(2));
  EXPECT_EQ(keeper_.size(), 1u);
}

TEST_F(LeaseKeeperTest, AReceiptThatIsLateDoesNotMakeTheMessageYounger) {
  keeper_.Add(1, now_);
  EXPECT_THAT(TakeDue(now_ + minutes(59)).extend, ElementsAre(1));
  EXPECT_THAT(TakeDue(now_ + minutes(60)).give_up, ElementsAre(1));
}

TEST_F(LeaseKeeperTest, LeasesThatFallDueTogetherAreExtendedTogether) {
  keeper_.AddConfirmed(1, now_);
  keeper_.AddConfirmed(2, now_ + std::chrono::milliseconds(800));
  keeper_.AddConfirmed(3, now_ + seconds(3));
  EXPECT_THAT(TakeDue(now_ + seconds(55)).extend, UnorderedElementsAre(1, 2));
}

TEST_F(LeaseKeeperTest, TheExtensionIsThe99thPercentileWithinTheRangeOfTheApi) {
  EXPECT_EQ(keeper_.Extension(), seconds(60));
  for (int i = 0; i < 990; ++i) keeper_.Record(now_, now_ + std::chrono::milliseconds(20));
  EXPECT_EQ(keeper_.Extension(), seconds(10));
  for (int i = 0; i < 10; ++i) keeper_.Record(now_, now_ + seconds(100));
  EXPECT_EQ(keeper_.Extension(), seconds(10));  // exactly 99 % fit in the shorter time
  for (int i = 0; i < 10; ++i) keeper_.Record(now_, now_ + seconds(100));
  EXPECT_EQ(keeper_.Extension(), seconds(100));
  for (int i = 0; i < 1000; ++i) keeper_.Record(now_, now_ + minutes(30));
  EXPECT_EQ(keeper_.Extension(), seconds(600));
}

TEST_F(LeaseKeeperTest, OldMeasurementsFade) {
  for (int i = 0; i < 5000; ++i) keeper_.Record(now_, now_ + seconds(300));
  EXPECT_EQ(keeper_.Extension(), seconds(300));
  for (int i = 0; i < 100000; ++i) keeper_.Record(now_, now_ + seconds(20));
  EXPECT_EQ(keeper_.Extension(), seconds(20));
}

TEST_F(LeaseKeeperTest, UnderExactlyOnceTheExtensionIsAMinuteAtLeast) {
  keeper_.Record(now_, now_ + seconds(1));
  EXPECT_EQ(keeper_.Extension(), seconds(10));
  keeper_.set_exactly_once(true);
  EXPECT_EQ(keeper_.Extension(), seconds(60));
}

TEST_F(LeaseKeeperTest, AMessageHeldForAnHourIsGivenUp) {
  keeper_.AddConfirmed(1, now_);
  LeaseKeeper::Due due;
  int extensions = 0;
  while (due.give_up.empty()) {
    ASSERT_TRUE(keeper_.NextDue().has_value());
    due = TakeDue(*keeper_.NextDue());
    extensions += static_cast<int>(due.extend.size());
  }
  EXPECT_THAT(due.give_up, ElementsAre(1));
  EXPECT_EQ(extensions, 65);  // every 55 s within 60 min
  EXPECT_EQ(keeper_.size(), 0u);
  EXPECT_FALSE(keeper_.NextDue().has_value());
}

TEST_F(LeaseKeeperTest, ARemovedLeaseIsNotExtended) {
  keeper_.AddConfirmed(1, now_);
  keeper_.AddConfirmed(2, now_);
  keeper_.Remove(1);
  keeper_.Remove(7);
  EXPECT_THAT(TakeDue(now_ + seconds(55)).extend, ElementsAre(2));
}

}  // namespace
}  // namespace postbox::pubsub

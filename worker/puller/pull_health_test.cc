#include "worker/puller/pull_health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace postbox::puller {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(PullHealthTest, AtFirstItIsAliveAndNotReady) {
  const PullHealth health;
  EXPECT_THAT(health.NotAlive(PullHealth::TimePoint() + std::chrono::hours(9)), IsEmpty());
  EXPECT_THAT(health.NotReady(), ElementsAre("the configuration has not been read"));
}

TEST(PullHealthTest, AMainLoopThatDoesNotTurnInTimeIsNotAlive) {
  PullHealth health;
  const auto begin = PullHealth::TimePoint() + std::chrono::hours(9);
  health.Found({}, {});
  health.TurnsBy(begin + seconds(25), begin);
  EXPECT_THAT(health.NotAlive(begin + seconds(25)), IsEmpty());
  EXPECT_THAT(health.NotAlive(begin + seconds(26)),
              ElementsAre("the main loop has not turned for 26 s"));
  health.TurnsBy(begin + seconds(60), begin + seconds(30));
  EXPECT_THAT(health.NotAlive(begin + seconds(31)), IsEmpty());
  EXPECT_THAT(health.NotReady(), IsEmpty());
}

TEST(PullHealthTest, EachReasonIsALine) {
  PullHealth health;
  const auto begin = PullHealth::TimePoint() + std::chrono::hours(9);
  health.TurnsBy(begin, begin);
  health.Found({"one", "two"}, {"three"});
  EXPECT_THAT(health.NotAlive(begin + seconds(1)),
              ElementsAre("one", "two", "the main loop has not turned for 1 s"));
  EXPECT_THAT(health.NotReady(), ElementsAre("three"));
}

}  // namespace
}  // namespace postbox::puller

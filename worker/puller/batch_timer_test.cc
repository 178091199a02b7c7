#include "worker/puller/batch_timer.h"

#include <gtest/gtest.h>

namespace postbox::puller {
namespace {

using std::chrono::milliseconds;

constexpr BatchTimer::TimePoint kBegin{std::chrono::hours(1)};

BatchTimer::TimePoint At(int ms) { return kBegin + milliseconds(ms); }

TEST(BatchTimer, AnEventAfterAPauseDoesNotWait) {
  BatchTimer timer(milliseconds(5));
  EXPECT_EQ(timer.Due(At(0), false), At(0));
  timer.Begun(At(0));
  EXPECT_EQ(timer.Due(At(5), false), At(5));
  EXPECT_EQ(timer.Due(At(1000), false), At(1000));
}

TEST(BatchTimer, SteadyEventsMakeABatchInEachDelay) {
  BatchTimer timer(milliseconds(5));
  int batches = 0;
  for (int ms = 0; ms < 100; ++ms) {
    if (timer.Due(At(ms), false) > At(ms)) continue;
    timer.Begun(At(ms));
    ++batches;
  }
  EXPECT_EQ(batches, 20);
}

TEST(BatchTimer, NoneWaitsForLongerThanTheDelay) {
  BatchTimer timer(milliseconds(5));
  // It was ready before, and found no room in the batch that has begun.
  timer.Begun(At(3));
  EXPECT_EQ(timer.Due(At(2), false), At(7));
}

TEST(BatchTimer, AFullBatchDoesNotWait) {
  BatchTimer timer(milliseconds(5));
  timer.Begun(At(0));
  EXPECT_EQ(timer.Due(At(1), true), At(1));
}

TEST(BatchTimer, WithoutADelayNothingWaits) {
  BatchTimer timer(milliseconds(0));
  timer.Begun(At(1));
  EXPECT_EQ(timer.Due(At(1), false), At(1));
}

}  // namespace
}  // namespace postbox::puller

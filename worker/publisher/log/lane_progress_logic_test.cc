#include "worker/publisher/log/lane_progress_logic.h"

#include <gtest/gtest.h>

namespace postbox::publisher {
namespace {

LogPosition At(std::int64_t hwm) {
  const auto xid = static_cast<FullXid>(hwm);
  return LogPosition::At({hwm, {xid, xid, {}}, xid});
}

TEST(LaneProgress, MayBeCheckpointedBehindTheUnbrokenRowOfSettledChunks) {
  LaneProgress progress(At(10));
  const auto first = progress.Add({11, 12}, At(12));
  const auto second = progress.Add({13}, At(13));
  EXPECT_EQ(progress.read(), At(13));
  EXPECT_TRUE(progress.Settle(second));
  EXPECT_EQ(progress.settled(), At(10));
  EXPECT_TRUE(progress.Settle(first));
  EXPECT_EQ(progress.settled(), At(10));
  EXPECT_TRUE(progress.Settle(first + 1));
  EXPECT_EQ(progress.settled(), At(13));
  EXPECT_TRUE(progress.idle());
}

TEST(LaneProgress, HandsFailedEventsOutAgainInTheOrderOfReadingOnceNothingIsOutstanding) {
  LaneProgress progress(At(10));
  const auto first = progress.Add({15, 11}, At(12));
  const auto second = progress.Add({13, 14}, At(14));
  EXPECT_TRUE(progress.Fail(second));
  EXPECT_TRUE(progress.Fail(first));
  EXPECT_TRUE(progress.Settle(first + 1));
  EXPECT_TRUE(progress.FirstFailed(10).empty()) << "one is outstanding still";
  EXPECT_TRUE(progress.Settle(second + 1));
  const auto again = progress.FirstFailed(10);
  ASSERT_EQ(again.size(), 2u);
  for (const auto& event : again) EXPECT_TRUE(progress.Retry(event.handle));
  EXPECT_FALSE(progress.Retry(again[0].handle));
  EXPECT_EQ(again[0].seq, 15);
  EXPECT_EQ(again[1].seq, 13);
  EXPECT_EQ(progress.outstanding(), 2u);
  EXPECT_EQ(progress.settled(), At(10));
  EXPECT_TRUE(progress.Settle(again[0].handle));
  EXPECT_TRUE(progress.Settle(again[1].handle));
  EXPECT_EQ(progress.settled(), At(14));
}

TEST(LaneProgress, HandsOutFailedEventsInSteps) {
  LaneProgress progress(At(10));
  const auto first = progress.Add({11, 12, 13}, At(13));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(progress.Fail(first + static_cast<unsigned>(i)));
  ASSERT_EQ(progress.FirstFailed(2).size(), 2u);
  EXPECT_TRUE(progress.Retry(first));
  EXPECT_EQ(progress.failed(), 2u);
  EXPECT_TRUE(progress.FirstFailed(2).empty()) << "one is outstanding";
  EXPECT_TRUE(progress.Fail(first));
  ASSERT_EQ(progress.FirstFailed(1).size(), 1u);
  EXPECT_EQ(progress.FirstFailed(1)[0].handle, first) << "it is the first again";
}

TEST(LaneProgress, SettlesAnEmptyChunkAtOnce) {
  LaneProgress progress(At(10));
  progress.Add({}, At(20));
  EXPECT_EQ(progress.settled(), At(20));
  EXPECT_TRUE(progress.idle());
}

TEST(LaneProgress, RefusesWhatIsNotOutstanding) {
  LaneProgress progress(At(10));
  const auto first = progress.Add({11}, At(11));
  EXPECT_FALSE(progress.Settle(first + 1));
  EXPECT_FALSE(progress.Settle(0));
  EXPECT_TRUE(progress.Settle(first));
  EXPECT_FALSE(progress.Settle(first));
  EXPECT_FALSE(progress.Fail(first));
}

}  // namespace
}  // namespace postbox::publisher

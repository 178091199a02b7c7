#include "worker/publisher/source/log/stored_position_logic.h"

#include <gtest/gtest.h>

namespace postbox::publisher {
namespace {

using std::chrono::milliseconds;

constexpr StoredPosition::Intervals kIntervals{milliseconds(200), milliseconds(60'000)};

// Of a moment at which everything below `xmin` had ended and seqs up to `hwm` were given out.
LanePosition At(std::int64_t hwm, FullXid xmin, FullXid next_xid) {
  return {LogPosition::At({hwm, {xmin, next_xid, {xmin}}, next_xid}), std::nullopt};
}

LanePosition Quiet(std::int64_t hwm, FullXid xid) { return At(hwm, xid, xid); }

// A lane that was taken at time 0.
class StoredPositionTest : public testing::Test {
 protected:
  void Read(std::int64_t seq, const LanePosition& after, FullXid next_xid) {
    const auto handle = progress_.Add({seq}, after.main);
    stored_.NoteRead(next_xid);
    progress_.Settle(handle);
  }
  void Pass(const LanePosition& after, FullXid next_xid) {
    progress_.Add({}, after.main);
    stored_.NotePassed(next_xid);
  }
  void Look(const LanePosition& after) { progress_.Add({}, after.main); }
  void Write(int at_ms) {
    stored_.BeginStep();
    stored_.Write(progress_, After(0, milliseconds(at_ms)));
  }
  // In milliseconds; -1: not at all.
  std::int64_t DueIn(int now_ms, bool more = false) const {
    const auto due =
        stored_.DueIn(progress_.settled(), more, After(0, milliseconds(now_ms)), kIntervals);
    return due ? due->count() : -1;
  }

  LaneProgress progress_{Quiet(10, 100)};
  StoredPosition stored_{Quiet(10, 100), 1, 0};
};

TEST_F(StoredPositionTest, IsNotWrittenAgainWhileNothingIsRead) {
  EXPECT_EQ(DueIn(0), -1);
  Look(Quiet(10, 200));
  EXPECT_EQ(DueIn(1'000'000), -1) << "newer transaction ids say the same";
}

TEST_F(StoredPositionTest, IsWrittenWithinTheCheckpointIntervalOfTheLastTimeOnceEventsAreSettled) {
  const auto handle = progress_.Add({11}, Quiet(11, 110).main);
  stored_.NoteRead(110);
  EXPECT_EQ(DueIn(50), -1) << "it is outstanding";
  progress_.Settle(handle);
  EXPECT_EQ(DueIn(50), 150);
  EXPECT_EQ(DueIn(500), 0);
  Write(500);
  EXPECT_EQ(DueIn(510), -1);
}

TEST_F(StoredPositionTest, IsWrittenForWhatIsStoredWithIt) { EXPECT_EQ(DueIn(50, true), 150); }

TEST_F(StoredPositionTest, IsWrittenOnceMoreWhenTheTransactionsOfItsEventsHaveEnded) {
  Read(11, At(11, 105, 110), 110);
  Write(300);
  Look(At(11, 107, 115));
  EXPECT_EQ(DueIn(1'000), -1) << "one below 110 is still running";
  Look(At(11, 112, 116));
  EXPECT_EQ(DueIn(400), 100);
  Write(500);
  Look(At(11, 116, 120));
  EXPECT_EQ(DueIn(1'000'000), -1);
}

TEST_F(StoredPositionTest, OfALaneThatPassesTheEventsOfOthersIsWrittenAtTheMaintenanceInterval) {
  Pass(At(20, 105, 110), 110);
  EXPECT_EQ(DueIn(1'000), 59'000);
  Write(60'000);
  EXPECT_EQ(DueIn(61'000), -1);
  Look(At(20, 112, 115));
  EXPECT_EQ(DueIn(61'000), 59'000) << "what ran meanwhile has ended";
}

TEST_F(StoredPositionTest, OfALaneWithoutEventsIsNeverVeryFarBehind) {
  Pass(Quiet(10'010, 110), 110);
  EXPECT_EQ(DueIn(1'000), 59'000);
  Pass(Quiet(10'011, 110), 110);
  EXPECT_EQ(DueIn(1'000), 0);
}

TEST_F(StoredPositionTest, OfASplitLaneIsWrittenWhateverHasChanged) {
  Read(11, Quiet(11, 110), 110);
  progress_.Split(20);
  Write(200);
  EXPECT_EQ(DueIn(300), -1);
  Look(Quiet(20, 120));
  EXPECT_EQ(DueIn(300), 100);
  Write(400);
  ASSERT_TRUE(progress_.Join());
  EXPECT_EQ(DueIn(500), 100) << "the row still has two parts";
}

TEST_F(StoredPositionTest, IsWhatItWasWhenTheStepFailsThatHasWrittenIt) {
  const auto first = progress_.next();
  Read(11, At(11, 105, 110), 110);
  stored_.BeginStep();
  EXPECT_FALSE(stored_.RollBack()) << "this step has written nothing";
  stored_.Write(progress_, After(0, milliseconds(300)));
  EXPECT_EQ(stored_.next(), progress_.next());
  EXPECT_TRUE(stored_.RollBack());
  EXPECT_EQ(stored_.main(), Quiet(10, 100).main);
  EXPECT_EQ(stored_.next(), first);
  EXPECT_EQ(DueIn(400), 100) << "not at once: it has just failed";
}

TEST_F(StoredPositionTest, OfALogThatBeganAgainIsWrittenAlsoIfTheLaneHasNoneOfItsEvents) {
  LaneProgress progress{LanePosition()};
  StoredPosition stored(LanePosition(), 1, 0);
  stored.MarkUnwritten();
  EXPECT_FALSE(stored.DueIn(progress.settled(), false, 0, kIntervals)) << "nothing is known yet";
  progress.Add({}, Quiet(5, 120).main);
  stored.NotePassed(120);
  EXPECT_EQ(stored.DueIn(progress.settled(), false, 0, kIntervals), kIntervals.checkpoint);
}

TEST(StoredPosition, ThatWasTakenIsWrittenOnceMoreWhenWhatRanThenHasEnded) {
  LaneProgress progress(At(20, 105, 110));
  StoredPosition stored(At(20, 105, 110), 1, 0);
  EXPECT_FALSE(stored.DueIn(progress.settled(), false, 0, kIntervals));
  progress.Add({}, At(20, 112, 120).main);
  EXPECT_EQ(stored.DueIn(progress.settled(), false, 0, kIntervals), kIntervals.maintenance);
}

}  // namespace
}  // namespace postbox::publisher

#include "worker/publisher/source/log/lane_progress_logic.h"

#include <gtest/gtest.h>

namespace postbox::publisher {
namespace {

LogPosition At(std::int64_t hwm) {
  const auto xid = static_cast<FullXid>(hwm);
  return LogPosition::At({hwm, {xid, xid, {}}, xid});
}

const auto kAll = [](std::int64_t) { return true; };

LanePosition Lane(std::int64_t hwm) { return {At(hwm), std::nullopt}; }

TEST(LaneProgress, MayBeCheckpointedBehindTheUnbrokenRowOfSettledChunks) {
  LaneProgress progress(Lane(10));
  const auto first = progress.Add({11, 12}, At(12));
  const auto second = progress.Add({13}, At(13));
  EXPECT_EQ(progress.read().main, At(13));
  EXPECT_TRUE(progress.Settle(second));
  EXPECT_EQ(progress.settled().main, At(10));
  EXPECT_TRUE(progress.Settle(first));
  EXPECT_EQ(progress.settled().main, At(10));
  EXPECT_TRUE(progress.Settle(first + 1));
  EXPECT_EQ(progress.settled().main, At(13));
  EXPECT_TRUE(progress.idle());
}

TEST(LaneProgress, SaysWhichEventsAreReadAgainFromItsSettledPosition) {
  LaneProgress progress(Lane(10), 5);
  EXPECT_EQ(progress.first_unsettled(), progress.next());
  const auto first = progress.Add({11, 12}, At(12));
  const auto second = progress.Add({13}, At(13));
  EXPECT_TRUE(progress.Settle(second));
  EXPECT_EQ(progress.first_unsettled(), first) << "what is behind it is read again with it";
  EXPECT_TRUE(progress.Settle(first));
  EXPECT_TRUE(progress.Settle(first + 1));
  EXPECT_EQ(progress.first_unsettled(), progress.next());
  progress.Split(20);
  progress.Add({15}, At(15));
  const auto ahead = progress.Add({21}, At(21), LaneProgress::Part::kAhead);
  EXPECT_EQ(progress.first_unsettled(), ahead - 1) << "of both parts";
}

TEST(LaneProgress, HandsFailedEventsOutAgainInTheOrderOfReadingOnceNothingIsOutstanding) {
  LaneProgress progress(Lane(10));
  const auto first = progress.Add({15, 11}, At(12));
  const auto second = progress.Add({13, 14}, At(14));
  EXPECT_TRUE(progress.Fail(second));
  EXPECT_TRUE(progress.Fail(first));
  EXPECT_TRUE(progress.Settle(first + 1));
  EXPECT_TRUE(progress.FirstAgain(10).value().empty()) << "one is outstanding still";
  EXPECT_TRUE(progress.Settle(second + 1));
  const auto again = progress.FirstAgain(10).value();
  ASSERT_EQ(again.size(), 2u);
  for (const auto& event : again) EXPECT_TRUE(progress.HandOut(event.handle));
  EXPECT_FALSE(progress.HandOut(again[0].handle));
  EXPECT_EQ(again[0].seq, 15);
  EXPECT_EQ(again[1].seq, 13);
  EXPECT_EQ(progress.outstanding(), 2u);
  EXPECT_EQ(progress.settled().main, At(10));
  EXPECT_TRUE(progress.Settle(again[0].handle));
  EXPECT_TRUE(progress.Settle(again[1].handle));
  EXPECT_EQ(progress.settled().main, At(14));
}

TEST(LaneProgress, HandsOutFailedEventsInSteps) {
  LaneProgress progress(Lane(10));
  const auto first = progress.Add({11, 12, 13}, At(13));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(progress.Fail(first + static_cast<unsigned>(i)));
  ASSERT_EQ(progress.FirstAgain(2).value().size(), 2u);
  EXPECT_TRUE(progress.HandOut(first));
  EXPECT_EQ(progress.failed(), 2u);
  EXPECT_TRUE(progress.FirstAgain(2).value().empty()) << "one is outstanding";
  EXPECT_TRUE(progress.Fail(first));
  ASSERT_EQ(progress.FirstAgain(1).value().size(), 1u);
  EXPECT_EQ(progress.FirstAgain(1).value()[0].handle, first) << "it is the first again";
}

TEST(LaneProgress, SettlesAnEmptyChunkAtOnce) {
  LaneProgress progress(Lane(10));
  progress.Add({}, At(20));
  EXPECT_EQ(progress.settled().main, At(20));
  EXPECT_TRUE(progress.idle());
}

TEST(LaneProgress, RefusesWhatIsNotOutstanding) {
  LaneProgress progress(Lane(10));
  const auto first = progress.Add({11}, At(11));
  EXPECT_FALSE(progress.Settle(first + 1));
  EXPECT_FALSE(progress.Settle(0));
  EXPECT_TRUE(progress.Settle(first));
  EXPECT_FALSE(progress.Settle(first));
  EXPECT_FALSE(progress.Fail(first));
}

TEST(LaneProgress, KeepsWhatIsReadAheadOfABacklogInAPartOfItsOwn) {
  LaneProgress progress(Lane(10));
  const auto backlog = progress.Add({11, 12}, At(12));
  progress.Split(100);
  const auto ahead = progress.Add({101, 102}, LogPosition::At({102, {7, 7, {}}, 7}, 100),
                                  LaneProgress::Part::kAhead);
  EXPECT_TRUE(progress.Settle(ahead));
  EXPECT_TRUE(progress.Settle(ahead + 1));
  EXPECT_EQ(progress.settled().main, At(10));
  EXPECT_EQ(progress.settled().ahead->position.from(), 102);
  EXPECT_EQ(progress.settled().from(), 102);
  EXPECT_EQ(progress.outstanding(LaneProgress::Part::kMain), 2u);
  EXPECT_EQ(progress.outstanding(), 2u);
  EXPECT_TRUE(progress.Settle(backlog));
  EXPECT_TRUE(progress.Settle(backlog + 1));
  EXPECT_EQ(progress.settled().main, At(12));
}

TEST(LaneProgress, StoresBesideThePositionWhichEventsAreWithheld) {
  LaneProgress progress(Lane(10));
  progress.Split(100);
  const auto ahead = progress.Add({101, 102}, LogPosition::At({102, {7, 7, {}}, 7}, 100),
                                  LaneProgress::Part::kAhead);
  EXPECT_TRUE(progress.Withhold(ahead));
  EXPECT_FALSE(progress.Withhold(ahead));
  EXPECT_EQ(progress.settled().ahead->position.from(), 100) << "102 is outstanding";
  EXPECT_TRUE(progress.Settle(ahead + 1));
  EXPECT_EQ(progress.settled().ahead->position.from(), 102);
  EXPECT_EQ(progress.settled().ahead->withheld, std::vector<std::int64_t>{101});
  EXPECT_TRUE(progress.idle());

  LaneProgress next(progress.settled(), 7);
  EXPECT_EQ(next.withheld(), std::vector<std::int64_t>{101});
  EXPECT_TRUE(next.is_split());
  EXPECT_EQ(next.next(), 7u);
}

TEST(LaneProgress, HandsOutWithheldEventsWhenTheBacklogIsPublished) {
  LaneProgress progress(Lane(10));
  progress.Split(100);
  const auto ahead = progress.Add({103, 101, 102}, LogPosition::At({103, {7, 7, {}}, 7}, 100),
                                  LaneProgress::Part::kAhead);
  EXPECT_TRUE(progress.Withhold(ahead));
  EXPECT_TRUE(progress.Withhold(ahead + 1));
  EXPECT_TRUE(progress.Settle(ahead + 2));
  progress.Add({}, LogPosition::At({100, {9, 9, {}}, 9}));
  progress.Release(kAll);
  EXPECT_TRUE(progress.withheld().empty());
  EXPECT_EQ(progress.waiting(), 2u);
  EXPECT_EQ(progress.failed(), 0u);
  const auto again = progress.FirstAgain(10).value();
  ASSERT_EQ(again.size(), 2u);
  EXPECT_EQ(again[0].seq, 103) << "in the order of reading";
  EXPECT_EQ(again[1].seq, 101);
  for (const auto& event : again) EXPECT_TRUE(progress.HandOut(event.handle));
  EXPECT_TRUE(progress.Settle(again[1].handle));
  EXPECT_EQ(progress.settled().ahead->withheld, std::vector<std::int64_t>{103});
  EXPECT_TRUE(progress.Settle(again[0].handle));
  EXPECT_EQ(progress.waiting(), 0u);
  EXPECT_TRUE(progress.settled().ahead->withheld.empty());
  EXPECT_TRUE(progress.Join());
  EXPECT_FALSE(progress.is_split());
  EXPECT_EQ(progress.settled(), progress.read());
  EXPECT_EQ(progress.read().main.zones().size(), 2u);
  EXPECT_EQ(progress.read().main.from(), 103);
  EXPECT_EQ(progress.read().main.top().xmax, 7u) << "all of it is read as far as this";
}

TEST(LaneProgress, HandsOutThoseWithheldEventsThatMayGoAndKeepsTheOthersStored) {
  LaneProgress progress(Lane(10));
  const auto backlog = progress.Add({11}, At(11));
  progress.Split(100);
  const auto ahead = progress.Add({101, 102, 103}, LogPosition::At({103, {7, 7, {}}, 7}, 100),
                                  LaneProgress::Part::kAhead);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(progress.Withhold(ahead + i));
  EXPECT_TRUE(progress.Release([](std::int64_t) { return false; }).empty());
  EXPECT_EQ(progress.waiting(), 0u);
  EXPECT_EQ(progress.Release([](std::int64_t seq) { return seq != 102; }),
            (std::vector<std::int64_t>{101, 103}));
  EXPECT_EQ(progress.withheld(), std::vector<std::int64_t>{102});
  EXPECT_EQ(progress.waiting(), 2u);
  EXPECT_EQ(progress.settled().ahead->withheld, (std::vector<std::int64_t>{101, 102, 103}));
  const auto released = progress.FirstAgain(10).value();
  for (const auto& event : released) {
    EXPECT_TRUE(progress.HandOut(event.handle));
    EXPECT_TRUE(progress.Settle(event.handle));
  }
  EXPECT_EQ(progress.settled().ahead->withheld, std::vector<std::int64_t>{102});
  EXPECT_TRUE(progress.Settle(backlog));
  progress.Add({}, LogPosition::At({100, {9, 9, {}}, 9}));
  EXPECT_FALSE(progress.Join()) << "102 is withheld";
  EXPECT_EQ(progress.Release(kAll), std::vector<std::int64_t>{102});
}

TEST(LaneProgress, JoinsItsPartsWhileEventsThatWereReadAheadAreOutstanding) {
  LaneProgress progress(Lane(10));
  const auto backlog = progress.Add({11}, At(11));
  progress.Split(100);
  const auto ahead =
      progress.Add({101}, LogPosition::At({101, {7, 7, {}}, 7}, 100), LaneProgress::Part::kAhead);
  progress.Add({}, LogPosition::At({100, {9, 9, {}}, 9}));
  EXPECT_FALSE(progress.Join()) << "the backlog is outstanding";
  EXPECT_TRUE(progress.Settle(backlog));
  EXPECT_TRUE(progress.Join());
  EXPECT_EQ(progress.settled().main.from(), 100);
  EXPECT_EQ(progress.read().main.from(), 101);
  EXPECT_EQ(progress.outstanding(LaneProgress::Part::kMain), 1u);
  EXPECT_TRUE(progress.Settle(ahead));
  EXPECT_EQ(progress.settled(), progress.read());
}

TEST(LaneProgress, WithholdsEventsAgainWhenMoreOfTheBacklogComes) {
  LaneProgress progress(Lane(10));
  progress.Split(100);
  const auto add = [&](std::int64_t seq) {
    const auto xid = static_cast<FullXid>(seq);
    return progress.Add({seq}, LogPosition::At({seq, {xid, xid, {}}, xid}, 100),
                        LaneProgress::Part::kAhead);
  };
  EXPECT_TRUE(progress.Withhold(add(101)));
  progress.Release(kAll);
  const auto first = progress.FirstAgain(10).value();
  ASSERT_EQ(first.size(), 1u);
  EXPECT_TRUE(progress.HandOut(first[0].handle));
  EXPECT_TRUE(progress.Withhold(add(102)));
  EXPECT_EQ(progress.settled().ahead->withheld, std::vector<std::int64_t>{101});
  progress.Release(kAll);
  const auto second = progress.FirstAgain(10).value();
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].seq, 102);
  EXPECT_TRUE(progress.HandOut(second[0].handle));
  EXPECT_TRUE(progress.Settle(first[0].handle));
  EXPECT_EQ(progress.settled().ahead->withheld, std::vector<std::int64_t>{102});
  EXPECT_TRUE(progress.Settle(second[0].handle));
  EXPECT_TRUE(progress.settled().ahead->withheld.empty());
}

TEST(LaneProgress, HandsFailedEventsOfBothPartsOutInTheOrderOfReading) {
  LaneProgress progress(Lane(10));
  const auto first = progress.Add({11}, At(11));
  progress.Split(100);
  const auto second =
      progress.Add({101}, LogPosition::At({101, {7, 7, {}}, 7}, 100), LaneProgress::Part::kAhead);
  const auto third = progress.Add({12}, At(12));
  for (const auto handle : {third, second, first}) EXPECT_TRUE(progress.Fail(handle));
  const auto again = progress.FirstAgain(10).value();
  ASSERT_EQ(again.size(), 3u);
  EXPECT_EQ(again[0].seq, 11);
  EXPECT_EQ(again[1].seq, 101);
  EXPECT_EQ(again[2].seq, 12);
}

}  // namespace
}  // namespace postbox::publisher

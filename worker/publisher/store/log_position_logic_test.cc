#include "worker/publisher/store/log_position_logic.h"

#include <gtest/gtest.h>

#include <map>

#include "worker/publisher/store/log_history.h"

namespace postbox::publisher {
namespace {

// Reads a chunk and moves the position behind it.
std::vector<Row> ReadChunk(const History& history, const LogMoment& moment, size_t limit,
                           LogPosition* position) {
  const std::vector<Row> chunk = Unread(history, *position, moment, limit);
  if (chunk.size() == limit) {
    *position = position->AfterPartial(moment, chunk.back().seq);
  } else {
    *position = moment.left_out == 0 ? position->AfterAll(moment) : position->AfterLate(moment);
  }
  return chunk;
}

TEST(XidSnapshot, IsReadFromAndWrittenToTheTextOfPgSnapshot) {
  for (const char* text : {"10:20:12,15", "10:10:", "3:3:", "5:9:5"}) {
    auto snapshot = XidSnapshot::FromText(text);
    ASSERT_TRUE(snapshot) << text;
    EXPECT_EQ(snapshot->ToText(), text);
  }
  for (const char* text : {"", "10", "10:20", "10:20:x", "10:20:15,12", "10:20:1,", "a:b:"}) {
    EXPECT_FALSE(XidSnapshot::FromText(text)) << text;
  }
}

TEST(XidSnapshot, IsNotReadFromNumbersThatNoSnapshotHas) {
  for (const char* text : {"9:5:", "9:5:6", "0:5:", "5:9:4", "5:9:9", "5:9:6,6", "5:9:7,6"}) {
    EXPECT_FALSE(XidSnapshot::FromText(text)) << text;
  }
}

TEST(XidSnapshot, SeesWhatWasCompletedAndNothingElse) {
  XidSnapshot snapshot{10, 20, {10, 15}};
  EXPECT_TRUE(snapshot.Sees(9));
  EXPECT_FALSE(snapshot.Sees(10));
  EXPECT_TRUE(snapshot.Sees(11));
  EXPECT_FALSE(snapshot.Sees(15));
  EXPECT_FALSE(snapshot.Sees(20));
}

TEST(LogPosition, ReadsARowWhoseTransactionWasAboveXmaxWhenItsSeqWasAlreadyTaken) {
  History history;
  FullXid early = history.Begin();
  FullXid late = history.Begin();  // never below xmax until something later completes
  history.Emit(late, 1);
  history.Emit(early, 2);
  history.Commit(early);
  LogPosition position;
  LogMoment moment{history.last_seq(), history.Snapshot(), history.next_xid()};
  EXPECT_EQ(ReadChunk(history, moment, 100, &position).size(), 1u);
  history.Commit(late);
  moment = {history.last_seq(), history.Snapshot(), history.next_xid()};
  auto chunk = ReadChunk(history, moment, 100, &position);
  ASSERT_EQ(chunk.size(), 1u);
  EXPECT_EQ(chunk[0].txid, late);
  EXPECT_TRUE(position.caught_up());
}

TEST(LogPosition, LooksForNothingLateWhileATransactionStaysOpen) {
  History history;
  FullXid open = history.Begin();
  history.Emit(open, 1);
  history.Commit(history.Begin());
  LogPosition position;
  LogMoment moment{history.last_seq(), history.Snapshot(), history.next_xid()};
  ReadChunk(history, moment, 100, &position);
  EXPECT_TRUE(
      position.LateReads({history.last_seq(), history.Snapshot(), history.next_xid()}).empty());
}

TEST(LogPosition, ReadsARowWithASeqThatWasGivenOutASecondTime) {
  LogPosition position = LogPosition::At({100, {20, 20, {}}, 20});
  EXPECT_FALSE(position.HasRead(25, 7));
  const auto reads = position.LateReads({100, {26, 26, {}}, 26});
  ASSERT_EQ(reads.size(), 1u);
  EXPECT_EQ(reads[0].upto, 100);
  EXPECT_LE(reads[0].range_begin, 25u);
  EXPECT_EQ(reads[0].range_end, 26u);
  position = position.AfterAll({100, {26, 26, {}}, 26});
  EXPECT_TRUE(position.HasRead(25, 7));
  EXPECT_TRUE(position.LateReads({100, {26, 26, {}}, 26}).empty());
}

TEST(LogPosition, LooksForNoRepeatedSeqsWhenVeryManyTransactionsHaveBegunAndVeryManyRowsHaveCome) {
  const LogPosition position = LogPosition::At({100, {20, 20, {}}, 22});
  const XidSnapshot later{1'000'000, 1'000'000, {}};
  auto reads = position.LateReads({5'000'000, later, 1'000'000});
  ASSERT_EQ(reads.size(), 1u);
  EXPECT_EQ(reads[0].range_end, 22u);
  reads = position.LateReads({5'000, later, 1'000'000});
  ASSERT_EQ(reads.size(), 1u);
  EXPECT_EQ(reads[0].range_end, 1'000'000u);
}

TEST(LogPosition, HasReadNothingAboveTheLastValueOfTheSequence) {
  LogPosition position = LogPosition::At({100, {20, 20, {}}, 20});
  EXPECT_TRUE(position.HasRead(12, 100));
  EXPECT_FALSE(position.HasRead(12, 101));
  position = position.AfterAll({101, {21, 21, {}}, 21});
  EXPECT_EQ(position.from(), 101);
  EXPECT_TRUE(position.HasRead(12, 101));
}

TEST(LogPosition, NeverLooksAtRowsUpToItsFloor) {
  LogPosition position = LogPosition::At({100, {10, 20, {12}}, 25}, 100);
  EXPECT_TRUE(position.LateReads({100, {30, 30, {}}, 30}).empty());
  EXPECT_TRUE(position.HasRead(22, 100));
  EXPECT_FALSE(position.HasRead(22, 101));
}

TEST(LogPosition, ReadsWhatIsLateOfOthersBeforeALongTransaction) {
  // 11 and 12 were running when it caught up; then the first row of 11 was read.
  LogPosition position = LogPosition::At({100, {11, 13, {11, 12}}, 13});
  LogMoment moment{100, {12, 14, {12}}, 14};
  position = position.AfterPartial(moment, 10);
  moment = {100, {15, 15, {}}, 15, 11};
  const auto reads = position.LateReads(moment);
  ASSERT_EQ(reads.size(), 2u);
  EXPECT_EQ(reads[0].txids, std::vector<FullXid>{12});
  EXPECT_EQ(reads[1].txids, std::vector<FullXid>{12});
  position = position.AfterLate(moment);
  EXPECT_TRUE(position.HasRead(12, 10));
  EXPECT_TRUE(position.HasRead(12, 50));
  EXPECT_TRUE(position.HasRead(11, 10));
  EXPECT_FALSE(position.HasRead(11, 11));
  EXPECT_FALSE(position.HasRead(12, 101));
  EXPECT_EQ(position.lowest(), 10);
  EXPECT_TRUE(position.LateReads(moment).empty());
  moment.left_out = 0;
  const auto rest = position.LateReads(moment);
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(rest[0].txids, std::vector<FullXid>{11});
  EXPECT_EQ(rest[0].after, 10);
  EXPECT_EQ(position.AfterAll(moment), LogPosition::At({100, {15, 15, {}}, 15}));
}

class RandomReading {
 public:
  explicit RandomReading(unsigned seed)
      : seed_(seed), random_(seed), limit_(static_cast<size_t>(1 + random_.Number(7))) {}

  RandomHistory& random() { return random_; }

  // Reads a chunk. Returns whether it was full.
  bool Read(bool quiet) {
    LogMoment moment = random_.Moment(quiet);
    const std::vector<Row>& rows = random_.history().rows();
    if (!quiet && !rows.empty() && random_.Chance(40)) {
      moment.left_out =
          rows[static_cast<size_t>(random_.Number(static_cast<int>(rows.size())))].txid;
    }
    auto chunk = ReadChunk(random_.history(), moment, limit_, &position_);
    for (const Row& row : chunk) {
      ++taken_[row.seq];
      EXPECT_GT(row.seq, last_of_key_[row.key]) << "seed " << seed_;
      last_of_key_[row.key] = row.seq;
      EXPECT_TRUE(position_.HasRead(row.txid, row.seq)) << "seed " << seed_;
    }
    return chunk.size() == limit_;
  }

  void CommitAll() {
    while (!random_.AllEnded()) {
      random_.CommitOne();
      if (random_.Chance(30)) Read(true);
    }
  }

  void ExpectEachCommittedRowTakenOnce() {
    for (const Row& row : random_.history().rows()) {
      ASSERT_EQ(taken_[row.seq], random_.history().committed(row.txid) ? 1 : 0)
          << "seed " << seed_ << " seq " << row.seq;
    }
  }

 private:
  const unsigned seed_;
  RandomHistory random_;
  const size_t limit_;
  std::map<int64_t, int> taken_;
  std::map<int, int64_t> last_of_key_;
  LogPosition position_;
};

TEST(LogPosition, TakesEveryCommittedRowOnceAndInOrderOfItsKeyInAnyHistory) {
  for (unsigned seed = 0; seed < 600; ++seed) {
    RandomReading reading(seed);
    for (int step = 0; step < 400; ++step) {
      reading.random().Happen();
      if (reading.random().Chance(15)) reading.Read(false);
    }
    reading.CommitAll();
    while (reading.Read(true)) {
    }
    reading.ExpectEachCommittedRowTakenOnce();
  }
}

}  // namespace
}  // namespace postbox::publisher

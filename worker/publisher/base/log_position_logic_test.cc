#include "worker/publisher/base/log_position_logic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace postbox::publisher {
namespace {

struct Row {
  FullXid txid;
  int64_t seq;
  int key;
};

// A database that hands out transaction ids and sequence numbers and takes snapshots as Postgres
// does: xmax is the latest completed transaction + 1.
class History {
 public:
  FullXid Begin() {
    running_.insert(next_xid_);
    return next_xid_++;
  }
  void Emit(FullXid txid, int key) { rows_.push_back({txid, ++last_seq_, key}); }
  void Commit(FullXid txid) {
    End(txid);
    committed_.insert(txid);
  }
  void Abort(FullXid txid) { End(txid); }

  int64_t last_seq() const { return last_seq_; }
  FullXid next_xid() const { return next_xid_; }
  const std::set<FullXid>& running() const { return running_; }
  const std::vector<Row>& rows() const { return rows_; }
  bool committed(FullXid txid) const { return committed_.contains(txid); }

  XidSnapshot Snapshot() const {
    XidSnapshot snapshot;
    snapshot.xmax = latest_completed_ + 1;
    snapshot.xmin = snapshot.xmax;
    for (FullXid xid : running_) {
      if (xid < snapshot.xmax) snapshot.xip.push_back(xid);
    }
    if (!snapshot.xip.empty()) snapshot.xmin = snapshot.xip.front();
    return snapshot;
  }

 private:
  void End(FullXid txid) {
    running_.erase(txid);
    latest_completed_ = std::max(latest_completed_, txid);
  }
  FullXid next_xid_ = 3;
  FullXid latest_completed_ = 2;
  int64_t last_seq_ = 0;
  std::set<FullXid> running_;
  std::set<FullXid> committed_;
  std::vector<Row> rows_;
};

// The reads that SQL does, over the history's rows.
std::vector<Row> ReadChunk(const History& history, const LogMoment& moment, size_t limit,
                           LogPosition* position) {
  auto visible = [&](const Row& row) {
    return history.committed(row.txid) && moment.snapshot.Sees(row.txid);
  };
  std::vector<Row> chunk;
  auto take = [&](auto&& wanted, int64_t after, int64_t upto) {
    for (const Row& row : history.rows()) {  // in order of seq
      if (chunk.size() == limit) return;
      if (row.seq > after && row.seq <= upto && visible(row) && wanted(row)) chunk.push_back(row);
    }
  };
  for (const LateRead& read : position->LateReads(moment)) {
    take(
        [&](const Row& row) {
          return std::count(read.txids.begin(), read.txids.end(), row.txid) > 0 ||
                 (row.txid >= read.range_begin && row.txid < read.range_end);
        },
        read.after, read.upto);
  }
  take([](const Row&) { return true; }, position->from(), moment.hwm);
  if (chunk.size() == limit) {
    *position = position->AfterPartial(moment, chunk.back().seq);
  } else {
    *position = position->AfterAll(moment);
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

TEST(LogPosition, ReadsARowWithASeqThatSomebodyHasCopied) {
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

TEST(LogPosition, LooksForNoCopiesWhenVeryManyTransactionsHaveBegunAndVeryManyRowsHaveCome) {
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

// Writers hold a lock on their key from the first emit to the end of the transaction, as emitters
// of one aggregate do; the reader takes hwm, snapshot and next_xid with things happening in
// between.
// A random history of up to eight transactions at a time, each of which locks the keys that it
// emits for, and a reader.
class RandomReading {
 public:
  explicit RandomReading(unsigned seed) : seed_(seed), random_(seed), limit_(1 + random_() % 7) {}

  bool Chance(int percent) { return static_cast<int>(random_() % 100) < percent; }

  // One transaction begins, emits or ends.
  void Happen() {
    int action = static_cast<int>(random_() % 100);
    if (action < 20 && locks_.size() < 8) {
      locks_[history_.Begin()];
    } else if (action < 75 && !locks_.empty()) {
      Emit();
    } else if (!locks_.empty()) {
      // The oldest one lives long.
      auto it = std::next(locks_.begin(), Chance(95) ? random_() % locks_.size() : 0);
      if (it == locks_.begin() && Chance(70)) return;
      for (int key : it->second) locked_.erase(key);
      Chance(80) ? history_.Commit(it->first) : history_.Abort(it->first);
      locks_.erase(it);
    }
  }

  // Reads a chunk, with things happening between its three reads unless `quiet`. Returns whether it
  // was full.
  bool Read(bool quiet) {
    LogMoment moment;
    moment.hwm = history_.last_seq();
    for (unsigned i = quiet ? 0 : random_() % 5; i > 0; --i) Happen();
    moment.snapshot = history_.Snapshot();
    for (unsigned i = quiet ? 0 : random_() % 5; i > 0; --i) Happen();
    moment.next_xid = history_.next_xid();
    auto chunk = ReadChunk(history_, moment, limit_, &position_);
    for (const Row& row : chunk) {
      ++taken_[row.seq];
      EXPECT_GT(row.seq, last_of_key_[row.key]) << "seed " << seed_;
      last_of_key_[row.key] = row.seq;
      EXPECT_TRUE(position_.HasRead(row.txid, row.seq)) << "seed " << seed_;
    }
    return chunk.size() == limit_;
  }

  void CommitAll() {
    while (!locks_.empty()) {
      history_.Commit(locks_.begin()->first);
      locks_.erase(locks_.begin());
      if (Chance(30)) Read(true);
    }
  }

  void ExpectEachCommittedRowTakenOnce() {
    for (const Row& row : history_.rows()) {
      ASSERT_EQ(taken_[row.seq], history_.committed(row.txid) ? 1 : 0)
          << "seed " << seed_ << " seq " << row.seq;
    }
  }

 private:
  void Emit() {
    auto it = std::next(locks_.begin(), random_() % locks_.size());
    int key = static_cast<int>(random_() % 6);
    if (!it->second.contains(key) && locked_.contains(key)) return;
    locked_.insert(key);
    it->second.insert(key);
    history_.Emit(it->first, key);
  }

  const unsigned seed_;
  std::mt19937 random_;
  const size_t limit_;
  History history_;
  std::map<FullXid, std::set<int>> locks_;
  std::set<int> locked_;
  std::map<int64_t, int> taken_;
  std::map<int, int64_t> last_of_key_;
  LogPosition position_;
};

TEST(LogPosition, TakesEveryCommittedRowOnceAndInOrderOfItsKeyInAnyHistory) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    RandomReading reading(seed);
    for (int step = 0; step < 400; ++step) {
      reading.Happen();
      if (reading.Chance(15)) reading.Read(false);
    }
    reading.CommitAll();
    while (reading.Read(true)) {
    }
    reading.ExpectEachCommittedRowTakenOnce();
  }
}

}  // namespace
}  // namespace postbox::publisher

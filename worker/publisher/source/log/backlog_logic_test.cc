// A lane that reads ahead of a backlog, against random histories, failures and crashes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <vector>

#include "worker/publisher/source/log/backlog_logic.h"
#include "worker/publisher/store/log_history.h"

namespace postbox::publisher {
namespace {

using Part = LaneProgress::Part;

// Reads a history as LogReader reads a log, in steps so small that all of its ways are taken.
class HistoryReader : public ChunkReader {
 public:
  explicit HistoryReader(RandomHistory& random) : random_(random) {}
  // So often, of 100 times, keys cannot be read.
  void FailAtKeys(int percent) { fails_ = percent; }

  LogChunk Read(const LogPosition& position, const LogMoment& moment, std::size_t limit,
                ByteBudget* budget) override {
    return TakeRows(Unread(random_.history(), position, moment, limit), limit, moment, budget);
  }

  LogChunk ReadLate(const LogPosition& position, const LogMoment& moment, std::size_t limit,
                    ByteBudget* budget) override {
    EXPECT_NE(moment.left_out, 0u);
    return Read(position, moment, limit, budget);
  }

  Transaction TransactionOf(const LogMoment& moment, std::int64_t seq) override {
    Transaction found{0, seq};
    for (const Row& row : random_.history().rows()) {
      if (row.seq == seq && random_.history().committed(row.txid)) found.txid = row.txid;
    }
    for (const Row& row : random_.history().rows()) {
      if (found.txid == row.txid && row.seq <= moment.hwm) found.last = std::max(seq, row.seq);
    }
    return found;
  }

  bool ReadKeys(const LogMoment& moment, KnownKeys* known) override {
    MayFail();
    const auto rows = Unread(random_.history(), known->read, moment, 3);
    for (const Row& row : rows) {
      known->keys.Add(row.seq, std::to_string(row.key));
      // As the filter, it takes a key for another now and then.
      if (random_.Chance(3)) known->keys.Add(row.seq, std::to_string(random_.Number(6)));
    }
    if (!rows.empty()) {
      known->keys.NoteSeen(rows.front().seq, rows.back().seq, moment.snapshot);
    }
    known->read = rows.size() == 3 ? known->read.AfterPartial(moment, rows.back().seq)
                                   : known->read.AfterAll(moment);
    return rows.size() < 3;
  }

  void ReadWithheld(const std::vector<std::int64_t>& seqs, KnownKeys* known) override {
    MayFail();
    for (const std::int64_t seq : seqs) {
      known->keys.Withhold(seq, std::to_string(random_.history().RowOf(seq).key));
    }
  }

 private:
  LogChunk TakeRows(const std::vector<Row>& rows, std::size_t limit, const LogMoment& moment,
                    ByteBudget* budget) {
    LogChunk chunk;
    chunk.left_out = moment.left_out;
    for (const Row& row : rows) {
      // Some are larger than others.
      const auto bytes = static_cast<std::size_t>(1 + row.seq % 3);
      if (bytes > budget->next()) {
        budget->Refuse(bytes);
        break;
      }
      budget->Take(bytes);
      chunk.events.push_back(NewEvent());
      chunk.events.back()->seq = row.seq;
      chunk.events.back()->key = std::to_string(row.key);
      chunk.events.back()->encoded.assign(bytes, 'x');
    }
    chunk.full = chunk.events.size() >= limit || budget->refused();
    return chunk;
  }

  void MayFail() {
    if (random_.Chance(fails_)) throw std::runtime_error("no keys");
  }

  RandomHistory& random_;
  int fails_ = 0;
};

// How many events went the ways that are to be tested.
struct Seen {
  std::size_t overtaken = 0;
  std::size_t beside = 0;
  std::size_t withheld = 0;
  std::size_t released_early = 0;
};

// A worker that has a lane, and what Pub/Sub and the database make of it.
class RandomWorker {
 public:
  RandomWorker(unsigned seed, bool crashes, Seen& seen)
      : seed_(seed), random_(seed), crashes_(crashes), seen_(seen) {
    limits_.patience = std::chrono::milliseconds(random_.Number(5));
    limits_.many_seqs = 2 + random_.Number(12);
    limits_.few_seqs = random_.Number(4);
    limits_.most_withheld = 5;
    limits_.keys_of_range = 2;
    limits_.keys_time = std::chrono::milliseconds(1 + random_.Number(3));
    reader_.FailAtKeys(random_.Number(20));
    Acquire();
  }

  RandomHistory& random() { return random_; }

  void Step(bool quiet) {
    const int action = random_.Number(100);
    if (action < 45) {
      Claim(quiet);
    } else if (action < 85) {
      Answer(quiet || random_.Chance(80));
    } else if (ends_) {
      return;
    } else if (action < 87) {
      FailToStore();
    } else if (action < 95) {
      Store();
    } else if (action < 97) {
      // Given up when what is on its way has its results: another one takes the lane.
      if (lane_->progress.outstanding() > 0 || lane_->progress.failed() > 0) return;
      Store();
      Acquire();
    } else if (crashes_ && !quiet) {
      sent_.clear();
      Acquire();
    }
  }

  // From here on nothing happens but what it does, and it stores what it must.
  void BeginTheEnd() {
    caught_up_ = false;
    ends_ = true;
    reader_.FailAtKeys(0);
  }
  bool Done() const { return lane_->progress.idle() && !lane_->progress.is_split() && caught_up_; }

  void ExpectNothingLost() {
    std::map<int, std::int64_t> last;
    for (const Row& row : random_.history().rows()) {
      if (random_.history().committed(row.txid)) last[row.key] = std::max(last[row.key], row.seq);
    }
    for (const auto& [key, seq] : last) EXPECT_EQ(last_[key], seq) << "seed " << seed_;
    for (const Row& row : random_.history().rows()) {
      const int times = published_[row.seq];
      if (!random_.history().committed(row.txid)) {
        EXPECT_EQ(times, 0) << "seed " << seed_;
      } else if (crashes_) {
        EXPECT_GE(times, 1) << "seed " << seed_ << " seq " << row.seq;
      } else {
        EXPECT_EQ(times, 1) << "seed " << seed_ << " seq " << row.seq;
      }
    }
  }

 private:
  struct Lane {
    Lane(const LanePosition& stored, LaneProgress::Handle next, RandomWorker& worker)
        : progress(stored, next),
          backlog(
              progress, worker.reader_, true, [&worker] { return ++worker.milliseconds_ * 1000; },
              worker.limits_) {}
    LaneProgress progress;
    Backlog backlog;
  };

  void Acquire() { lane_.emplace(stored_, lane_ ? lane_->progress.next() : 1, *this); }

  void Store() {
    stored_ = lane_->progress.settled();
    lane_->backlog.Stored();
  }

  // Its commit fails. What comes after a backlog is read as the stored position says.
  void FailToStore() {
    if (lane_->progress.is_split() && !crashes_) return;
    lane_->backlog.Stored();
    lane_->backlog.StoreFailed();
    if (lane_->progress.is_split()) {
      sent_.clear();
      Acquire();
    }
  }

  void Claim(bool quiet) {
    caught_up_ = false;
    if (lane_->backlog.TakeStoreDue()) Store();
    if (const auto again = lane_->progress.FirstAgain(3)) {
      for (const auto& event : *again) {
        EXPECT_TRUE(lane_->progress.HandOut(event.handle));
        Send(event.handle, event.seq);
      }
      return;
    }
    ByteBudget budget(random_.Chance(50) ? 1 + random_.Number(9) : 100, 100);
    const LogMoment moment = random_.Moment(quiet);
    const bool was_split = lane_->progress.is_split();
    Backlog::Read read;
    try {
      read = lane_->backlog.ReadNew(moment, stored_.main,
                                    {.events = static_cast<std::size_t>(1 + random_.Number(4)),
                                     .budget = &budget,
                                     .most_events = static_cast<std::size_t>(random_.Number(40)),
                                     .most_bytes = static_cast<std::size_t>(random_.Number(80)),
                                     .lanes = static_cast<std::size_t>(1 + random_.Number(2)),
                                     .may_read_keys = quiet || random_.Chance(90)});
    } catch (const std::runtime_error&) {
      EXPECT_TRUE(lane_->backlog.ForgetUnreadKeys());
      return;
    }
    EXPECT_FALSE(lane_->backlog.ForgetUnreadKeys());
    seen_.released_early += lane_->progress.waiting();
    if (read.main && read.main->left_out != 0) seen_.beside += read.main->events.size();
    if (read.ahead) Take(*read.ahead, Part::kAhead, read.moment);
    if (read.main) Take(*read.main, Part::kMain, read.main_moment);
    const bool more = lane_->backlog.SplitOrJoin(read);
    caught_up_ = !was_split && !read.main->full && !more;
  }

  void Take(const LogChunk& chunk, Part part, const LogMoment& moment) {
    if (chunk.full && chunk.events.empty()) return;
    const std::vector<bool> withheld = lane_->backlog.Withheld(chunk, part);
    LaneProgress::Handle handle = lane_->backlog.Add(chunk, part, moment, withheld);
    for (std::size_t i = 0; i < chunk.events.size(); ++i, ++handle) {
      if (!withheld.empty() && withheld[i]) {
        ++seen_.withheld;
        continue;
      }
      seen_.overtaken += part == Part::kAhead ? 1 : 0;
      Send(handle, chunk.events[i]->seq);
    }
  }

  void Send(LaneProgress::Handle handle, std::int64_t seq) {
    sent_[random_.history().RowOf(seq).key].push_back({handle, seq});
  }

  // The first event of a key is published, or fails with all that wait behind it.
  void Answer(bool published) {
    std::erase_if(sent_, [](const auto& key) { return key.second.empty(); });
    if (sent_.empty()) return;
    auto at = std::next(sent_.begin(), random_.Number(static_cast<int>(sent_.size())));
    if (!published) {
      for (const auto& [handle, seq] : at->second) EXPECT_TRUE(lane_->progress.Fail(handle));
      at->second.clear();
      return;
    }
    const auto [handle, seq] = at->second.front();
    at->second.erase(at->second.begin());
    for (const Row& row : random_.history().rows()) {
      if (row.key != at->first || row.seq >= seq || !random_.history().committed(row.txid))
        continue;
      EXPECT_GT(published_[row.seq], 0)
          << "seed " << seed_ << ": " << seq << " overtakes " << row.seq;
    }
    // Also when some are sent again, each is followed by the next ones of its key.
    for (const Row& row : random_.history().rows()) {
      if (row.key != at->first || row.seq <= last_[row.key] || row.seq >= seq) continue;
      EXPECT_FALSE(random_.history().committed(row.txid))
          << "seed " << seed_ << ": " << seq << " follows " << last_[row.key] << " without "
          << row.seq;
    }
    last_[at->first] = seq;
    ++published_[seq];
    EXPECT_TRUE(lane_->progress.Settle(handle));
  }

  const unsigned seed_;
  RandomHistory random_;
  const bool crashes_;
  BacklogLimits limits_;
  std::int64_t milliseconds_ = 0;
  HistoryReader reader_{random_};
  std::optional<Lane> lane_;
  LanePosition stored_;
  std::map<int, std::vector<std::pair<LaneProgress::Handle, std::int64_t>>> sent_;
  std::map<std::int64_t, int> published_;
  std::map<int, std::int64_t> last_;  // of each key
  bool caught_up_ = false;
  bool ends_ = false;
  Seen& seen_;
};

void ReadRandomHistories(bool crashes) {
  Seen seen;
  for (unsigned seed = 0; seed < 600 && !testing::Test::HasFailure(); ++seed) {
    RandomWorker worker(seed, crashes, seen);
    for (int step = 0; step < 800; ++step) {
      if (worker.random().Chance(40)) worker.random().Happen();
      worker.Step(false);
    }
    while (!worker.random().AllEnded()) {
      worker.random().CommitOne();
      if (worker.random().Chance(50)) worker.Step(true);
    }
    worker.BeginTheEnd();
    int steps = 0;
    while (!worker.Done() && ++steps < 100'000) worker.Step(true);
    ASSERT_TRUE(worker.Done()) << "seed " << seed;
    worker.ExpectNothingLost();
  }
  EXPECT_GT(seen.overtaken, 1000u);
  EXPECT_GT(seen.beside, 100u);
  EXPECT_GT(seen.withheld, 100u);
  EXPECT_GT(seen.released_early, 20u);
}

TEST(Backlog, IsOvertakenByOtherKeysOnlyAndEachEventIsPublishedOnce) { ReadRandomHistories(false); }

// A reader for which the backlog has one key, "old", and what comes after it these events.
class ScriptedReader : public ChunkReader {
 public:
  std::vector<std::pair<std::int64_t, std::string>> ahead;

  LogChunk Read(const LogPosition& position, const LogMoment& /*moment*/, std::size_t /*limit*/,
                ByteBudget* /*budget*/) override {
    LogChunk chunk;
    if (position.floor() == 0) {
      chunk.full = true;
      return chunk;
    }
    for (const auto& [seq, key] : ahead) {
      chunk.events.push_back(NewEvent());
      chunk.events.back()->seq = seq;
      chunk.events.back()->key = key;
    }
    return chunk;
  }
  LogChunk ReadLate(const LogPosition& position, const LogMoment& moment, std::size_t limit,
                    ByteBudget* budget) override {
    return Read(position, moment, limit, budget);
  }
  Transaction TransactionOf(const LogMoment& /*moment*/, std::int64_t seq) override {
    return {0, seq};
  }
  bool ReadKeys(const LogMoment& /*moment*/, KnownKeys* known) override {
    known->keys.Add(5, "old");
    return true;
  }
  void ReadWithheld(const std::vector<std::int64_t>& /*seqs*/, KnownKeys* /*known*/) override {}
};

std::vector<bool> WithheldOf(const std::vector<std::pair<std::int64_t, std::string>>& ahead) {
  ScriptedReader reader;
  reader.ahead = ahead;
  LaneProgress progress{LanePosition{}};
  progress.Split(10);
  Backlog backlog(progress, reader, true, [] { return Moment{0}; });
  ByteBudget budget = ByteBudget::Unlimited();
  const Backlog::Read read =
      backlog.ReadNew({.hwm = 100, .snapshot = {}, .next_xid = 3}, LogPosition(),
                      {.events = 10,
                       .budget = &budget,
                       .most_events = 100,
                       .most_bytes = 100,
                       .lanes = 1,
                       .may_read_keys = true});
  if (!read.ahead) return {};
  return backlog.Withheld(*read.ahead, Part::kAhead);
}

TEST(Backlog, KeepsTheLaterEventsOfItsKeysBackAndWhatHasTheSameSeq) {
  EXPECT_THAT(WithheldOf({{11, "new"}, {12, "old"}, {13, "new"}}),
              testing::ElementsAre(false, true, false));
  EXPECT_THAT(WithheldOf({{11, "a"}, {12, "b"}, {12, "old"}, {12, "c"}, {13, "d"}}),
              testing::ElementsAre(false, true, true, true, false));
}

TEST(Backlog, KeepsBackWhatHasAKeyThatIsTooLongToBeRead) {
  EXPECT_THAT(WithheldOf({{11, "new"}, {12, std::string(kMaxKey + 1, 'x')}}),
              testing::ElementsAre(false, true));
}

TEST(Backlog, IsOvertakenByOtherKeysOnlyAndNothingIsLostInCrashes) { ReadRandomHistories(true); }

}  // namespace
}  // namespace postbox::publisher

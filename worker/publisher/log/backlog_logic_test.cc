// A lane that reads ahead of a backlog as LogOutbox does, against random histories, failures and
// crashes: log_position_logic.h, lane_progress_logic.h.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "worker/publisher/base/log_history.h"
#include "worker/publisher/log/backlog_keys_logic.h"
#include "worker/publisher/log/lane_progress_logic.h"

namespace postbox::publisher {
namespace {

using Part = LaneProgress::Part;

class OvertakingReader {
 public:
  OvertakingReader(unsigned seed, bool crashes)
      : seed_(seed),
        random_(seed),
        crashes_(crashes),
        limit_(static_cast<size_t>(1 + random_.Number(4))) {}

  RandomHistory& random() { return random_; }
  size_t overtaken() const { return overtaken_; }
  size_t beside() const { return beside_; }
  size_t withheld() const { return withheld_; }
  size_t released_early() const { return released_early_; }

  void Step(bool quiet) {
    const int action = random_.Number(100);
    if (action < 45) {
      Claim(quiet);
    } else if (action < 85) {
      Answer(quiet || random_.Chance(80));
    } else if (action < 95) {
      Store();
    } else if (action < 97) {
      // Given up when what is on its way has its results: another one takes the lane.
      if (progress_.outstanding() > 0 || progress_.failed() > 0) return;
      Store();
      progress_ = LaneProgress(stored_, progress_.next());
      keys_.reset();
    } else if (crashes_ && !quiet) {
      progress_ = LaneProgress(stored_, progress_.next());
      sent_.clear();
      keys_.reset();
      main_unstored_ = false;
    }
  }

  // From here on nothing happens but what it does.
  void BeginTheEnd() { caught_up_ = false; }
  bool Done() const { return progress_.idle() && !progress_.is_split() && caught_up_; }

  void ExpectNothingLost() {
    std::map<int, int64_t> last;
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
  void Store() {
    stored_ = progress_.settled();
    if (progress_.outstanding(Part::kMain) == 0 && progress_.failed() == 0) main_unstored_ = false;
  }

  struct Keys {
    LogPosition read;
    BacklogKeys keys{2};
  };

  Row RowOf(int64_t seq) const {
    return *std::find_if(random_.history().rows().begin(), random_.history().rows().end(),
                         [&](const Row& row) { return row.seq == seq; });
  }

  void Claim(bool quiet) {
    caught_up_ = false;
    if (progress_.failed() > 0) {
      HandOut(progress_.FirstFailed(limit_));
      return;
    }
    if (progress_.waiting() > 0) {
      HandOut(progress_.FirstWaiting(limit_));
      return;
    }
    const LogMoment moment = random_.Moment(quiet);
    if (!progress_.is_split()) {
      caught_up_ = !Read(Part::kMain, moment);
      const int64_t from = progress_.read().main.from();
      const auto more = static_cast<int>(moment.hwm - from);
      if (!caught_up_ && random_.Chance(30)) {
        progress_.Split(from + random_.Number(more + 1));
        long_transaction_ = RowOf(progress_.read().main.lowest()).txid;
      }
      return;
    }
    LogMoment end = moment;
    end.hwm = progress_.read().ahead->position.floor();
    const bool main_read = random_.Chance(60);
    const size_t before = progress_.next();
    const bool beside = main_read && ReadBeside(end);
    const bool more = main_read && !beside && Read(Part::kMain, end);
    const bool nothing_left = main_read && !beside && !more && progress_.next() == before;
    if (!nothing_left || main_unstored_) {
      ReadAhead(moment, end);
    } else if (!progress_.withheld().empty()) {
      progress_.Release([](int64_t) { return true; });
      keys_.reset();
    } else if (progress_.Join()) {
      keys_.reset();
    } else {
      keys_.reset();
      Read(Part::kAhead, moment);
    }
  }

  void HandOut(const std::vector<LaneProgress::Event>& events) {
    for (const auto& event : events) {
      EXPECT_TRUE(progress_.HandOut(event.handle));
      Send(event.handle, event.seq);
    }
  }

  void ReadAhead(const LogMoment& moment, const LogMoment& end) {
    if (!keys_) {
      keys_ = Keys{stored_.main};
      for (const int64_t seq : progress_.withheld()) {
        keys_->keys.Withhold(seq, std::to_string(RowOf(seq).key));
      }
    }
    const auto rows = Unread(random_.history(), keys_->read, end, 3);
    for (const Row& row : rows) keys_->keys.Add(row.seq, std::to_string(row.key));
    if (!rows.empty()) keys_->keys.NoteSeen(rows.front().seq, rows.back().seq, end.snapshot);
    if (rows.size() == 3) {
      keys_->read = keys_->read.AfterPartial(end, rows.back().seq);
      return;
    }
    keys_->read = keys_->read.AfterAll(end);
    if (keys_->keys.Forget(stored_.main)) {
      const auto released = progress_.Release([&](int64_t seq) { return keys_->keys.MayGo(seq); });
      keys_->keys.Release(released);
      released_early_ += released.size();
      if (!released.empty()) return;
    }
    if (progress_.withheld().size() <= 5) Read(Part::kAhead, moment);
  }

  // What others have committed late comes before the rest of a long transaction.
  bool ReadBeside(LogMoment moment) {
    moment.left_out = long_transaction_;
    const size_t before = progress_.next();
    Read(Part::kMain, moment);
    beside_ += progress_.next() - before;
    return progress_.next() > before;
  }

  // Returns whether the chunk was full.
  bool Read(Part part, const LogMoment& moment) {
    const LogPosition position =
        part == Part::kMain ? progress_.read().main : progress_.read().ahead->position;
    const auto rows = Unread(random_.history(), position, moment, limit_);
    std::vector<std::int64_t> seqs;
    for (const Row& row : rows) seqs.push_back(row.seq);
    const bool full = rows.size() == limit_;
    if (part == Part::kMain && !rows.empty()) main_unstored_ = true;
    auto handle = progress_.Add(seqs, After(position, moment, full ? seqs.back() : 0), part);
    for (const Row& row : rows) {
      // As the filter, it takes a key for another now and then.
      const bool filtered = part == Part::kAhead && keys_;
      const std::string key = std::to_string(row.key);
      if (filtered && random_.Chance(3)) keys_->keys.Add(1, key);
      if (filtered && keys_->keys.MustWait(key)) {
        EXPECT_TRUE(progress_.Withhold(handle++));
        keys_->keys.Withhold(row.seq, key);
        ++withheld_;
      } else {
        overtaken_ += part == Part::kAhead ? 1 : 0;
        Send(handle++, row.seq);
      }
    }
    return full;
  }

  static LogPosition After(const LogPosition& position, const LogMoment& moment, int64_t last) {
    if (last > 0) return position.AfterPartial(moment, last);
    return moment.left_out == 0 ? position.AfterAll(moment) : position.AfterLate(moment);
  }

  void Send(LaneProgress::Handle handle, int64_t seq) {
    sent_[RowOf(seq).key].push_back({handle, seq});
  }

  // The first event of a key is published, or fails with all that wait behind it.
  void Answer(bool published) {
    std::erase_if(sent_, [](const auto& key) { return key.second.empty(); });
    if (sent_.empty()) return;
    auto at = std::next(sent_.begin(), random_.Number(static_cast<int>(sent_.size())));
    if (!published) {
      for (const auto& [handle, seq] : at->second) EXPECT_TRUE(progress_.Fail(handle));
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
    EXPECT_TRUE(progress_.Settle(handle));
  }

  const unsigned seed_;
  RandomHistory random_;
  const bool crashes_;
  const size_t limit_;
  LaneProgress progress_{LanePosition{}};
  LanePosition stored_;
  std::optional<Keys> keys_;
  std::map<int, std::vector<std::pair<LaneProgress::Handle, int64_t>>> sent_;
  std::map<int64_t, int> published_;
  std::map<int, int64_t> last_;  // of each key
  bool main_unstored_ = false;   // what was read of the backlog may be sent again
  bool caught_up_ = false;
  FullXid long_transaction_ = 0;
  size_t beside_ = 0;
  size_t overtaken_ = 0;
  size_t withheld_ = 0;
  size_t released_early_ = 0;
};

void ReadRandomHistories(bool crashes) {
  size_t overtaken = 0;
  size_t beside = 0;
  size_t withheld = 0;
  size_t released_early = 0;
  for (unsigned seed = 0; seed < 600 && !testing::Test::HasFailure(); ++seed) {
    OvertakingReader reader(seed, crashes);
    for (int step = 0; step < 800; ++step) {
      if (reader.random().Chance(40)) reader.random().Happen();
      reader.Step(false);
    }
    while (!reader.random().AllEnded()) {
      reader.random().CommitOne();
      if (reader.random().Chance(50)) reader.Step(true);
    }
    reader.BeginTheEnd();
    int steps = 0;
    while (!reader.Done() && ++steps < 100'000) reader.Step(true);
    ASSERT_TRUE(reader.Done()) << "seed " << seed;
    reader.ExpectNothingLost();
    overtaken += reader.overtaken();
    beside += reader.beside();
    withheld += reader.withheld();
    released_early += reader.released_early();
  }
  EXPECT_GT(overtaken, 1000u);
  EXPECT_GT(beside, 100u);
  EXPECT_GT(withheld, 100u);
  EXPECT_GT(released_early, 20u);
}

TEST(Backlog, IsOvertakenByOtherKeysOnlyAndEachEventIsPublishedOnce) { ReadRandomHistories(false); }

TEST(Backlog, IsOvertakenByOtherKeysOnlyAndNothingIsLostInCrashes) { ReadRandomHistories(true); }

}  // namespace
}  // namespace postbox::publisher

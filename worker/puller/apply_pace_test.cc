#include "worker/puller/apply_pace.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>

namespace postbox::puller {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A subscription whose throughput is known for each width, with a backlog without an end.
class Backlog {
 public:
  Backlog(int most, std::map<int, int> events_per_second)
      : pace_(most), rates_(std::move(events_per_second)) {}

  // Commits transactions of `events` for so long. `conflict`: whether one at this width conflicts.
  void Run(
      milliseconds time, size_t events = 500,
      const std::function<bool(int)>& conflict = [](int) { return false; }) {
    const auto end = now_ + time;
    while (now_ < end) {
      const int width = pace_.width();
      const std::chrono::microseconds took(width * events * 1000000 / rates_.at(width));
      now_ += took / width;
      applied_ += events;
      if (conflict(width)) {
        ++conflicts_;
        now_ += 3 * took / width + milliseconds(100);  // ApplyGate::time_limit
        pace_.Conflicted(now_);
        continue;
      }
      pace_.Wanted();
      pace_.Committed(events, width, took, now_);
      widest_ = std::max(widest_, pace_.width());
      time_at_[width] += 1;
    }
  }
  ApplyPace pace_;
  std::map<int, int> rates_;
  ApplyPace::TimePoint now_{seconds(1000)};
  size_t applied_ = 0;
  int conflicts_ = 0;
  int widest_ = 1;
  std::map<int, int> time_at_;  // commits by width
};

TEST(ApplyPaceTest, BeginsWithOneTransaction) {
  EXPECT_EQ(ApplyPace(4).width(), 1);
  EXPECT_FALSE(ApplyPace(4).on_trial());
}

TEST(ApplyPaceTest, GrowsToAllWhileThatIsFasterEachTime) {
  Backlog backlog(8, {{1, 5000}, {2, 10000}, {4, 20000}, {8, 40000}});
  backlog.Run(seconds(4));
  EXPECT_EQ(backlog.widest_, 8);
  // At the widest pace half of it is tried from time to time, and found to be slower.
  EXPECT_GT(backlog.time_at_[8], backlog.time_at_[4]);
}

TEST(ApplyPaceTest, GrowsToANumberThatIsNoPowerOfTwo) {
  Backlog backlog(3, {{1, 5000}, {2, 10000}, {3, 15000}});
  backlog.Run(seconds(4));
  EXPECT_EQ(backlog.widest_, 3);
}

TEST(ApplyPaceTest, StaysAtOneIfTwoAreNoFaster) {
  Backlog backlog(4, {{1, 10000}, {2, 10500}});
  backlog.Run(seconds(60));
  EXPECT_EQ(backlog.widest_, 2);
  EXPECT_LT(backlog.time_at_[2] * 10, backlog.time_at_[1]);
}

TEST(ApplyPaceTest, IsNotSlowerByAFifthThanOneTransactionIfMoreConflict) {
  Backlog backlog(8, {{1, 13000}, {2, 13000}});
  const auto begin = backlog.now_;
  while (backlog.applied_ < 20000) {
    backlog.Run(milliseconds(1), 500, [](int width) { return width > 1; });
  }
  EXPECT_GE(backlog.conflicts_, 1);
  EXPECT_LT(backlog.now_ - begin, milliseconds(20000 * 1000 / 13000 * 6 / 5));
}

TEST(ApplyPaceTest, TriesNothingInAShortBurst) {
  Backlog backlog(4, {{1, 10000}, {2, 20000}});
  for (int burst = 0; burst < 100; ++burst) {
    backlog.Run(milliseconds(900));
    backlog.now_ += seconds(1);
  }
  EXPECT_EQ(backlog.widest_, 1);
}

TEST(ApplyPaceTest, RestsLongerAfterEachConflict) {
  Backlog backlog(4, {{1, 10000}, {2, 10000}});
  const auto conflict = [](int width) { return width > 1; };
  backlog.Run(seconds(4), 500, conflict);
  const int first = backlog.conflicts_;
  EXPECT_GE(first, 1);
  EXPECT_LE(first, 3);
  backlog.Run(seconds(600), 500, conflict);
  EXPECT_LE(backlog.conflicts_, first + 600 / 30 + 5);
  EXPECT_GE(backlog.conflicts_, first + 600 / 30 - 5) << "it does not try again";
}

TEST(ApplyPaceTest, GrowsOnceTheConflictsAreOver) {
  Backlog backlog(4, {{1, 5000}, {2, 10000}, {4, 20000}});
  backlog.Run(seconds(20), 500, [](int width) { return width > 1; });
  EXPECT_EQ(backlog.pace_.width(), 1);
  backlog.Run(seconds(40));
  EXPECT_EQ(backlog.widest_, 4);
}

TEST(ApplyPaceTest, HalvesAtAConflictOutsideOfATrial) {
  Backlog backlog(4, {{1, 5000}, {2, 10000}, {4, 20000}});
  backlog.Run(seconds(4));
  while (backlog.pace_.width() < 4 || backlog.pace_.on_trial()) backlog.Run(milliseconds(1));
  backlog.pace_.Conflicted(backlog.now_);
  EXPECT_EQ(backlog.pace_.width(), 2);
  backlog.pace_.Conflicted(backlog.now_);
  EXPECT_EQ(backlog.pace_.width(), 1);
  backlog.pace_.Conflicted(backlog.now_);
  EXPECT_EQ(backlog.pace_.width(), 1);
}

TEST(ApplyPaceTest, GoesBackIfFewerHaveBecomeAsFast) {
  Backlog backlog(4, {{1, 5000}, {2, 10000}, {4, 20000}});
  backlog.Run(seconds(4));
  backlog.rates_ = {{1, 6000}, {2, 6000}, {4, 6000}};  // all events want one row
  backlog.Run(seconds(120));
  EXPECT_LT(backlog.pace_.width(), 4);
}

TEST(ApplyPaceTest, MeasuresSeveralCommitsOfLongTransactions) {
  // A transaction takes 2 s; two of them at a time are twice as fast.
  Backlog backlog(2, {{1, 250}, {2, 500}});
  backlog.Run(seconds(60));
  EXPECT_EQ(backlog.widest_, 2);
  EXPECT_GT(backlog.time_at_[2], backlog.time_at_[1]);
}

TEST(ApplyPaceTest, LearnsNothingWhileFewerRunThanMay) {
  ApplyPace pace(4);
  ApplyPace::TimePoint now{seconds(1000)};
  while (!pace.on_trial()) {
    now += milliseconds(20);
    pace.Wanted();
    pace.Committed(10, 1, milliseconds(20), now);
  }
  EXPECT_EQ(pace.width(), 2);
  EXPECT_TRUE(pace.on_trial());
  // The burst is over: one runs at a time. The trial ends, and the next one comes soon.
  const auto end = now + ApplyPace::kLongestTrial + seconds(1);
  while (now < end) {
    now += milliseconds(20);
    pace.Committed(10, 1, milliseconds(20), now);
  }
  EXPECT_EQ(pace.width(), 1);
  const auto again = now;
  while (!pace.on_trial()) {
    now += milliseconds(20);
    pace.Wanted();
    pace.Committed(10, 1, milliseconds(20), now);
    ASSERT_LT(now - again, seconds(1));
  }
}

TEST(ApplyPaceTest, TriesNoMoreThanIsWanted) {
  ApplyPace pace(4);
  ApplyPace::TimePoint now{seconds(1000)};
  for (int i = 0; i < 1000; ++i) {
    now += milliseconds(20);
    pace.Committed(10, 1, milliseconds(20), now);
  }
  EXPECT_EQ(pace.width(), 1);
}

}  // namespace
}  // namespace postbox::puller

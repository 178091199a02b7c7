// How many transactions of a subscription run at the same time: as many as are measured to help.
//
//   - Transactions that need the same rows, of counters for example, are no faster side by side.
//     They wait for each other, or deadlock, which costs a second each time. What rows the events
//     of a handler need cannot be known, so it is measured.
//   - The pace begins with one transaction. While more work waits, twice as many are tried, for a
//     few commits of each. They stay if they apply kGain times as many events a second. If not, the
//     pace goes back, and rests before the next trial. Rests double with each trial that failed.
//   - A conflict ends a trial at once. One outside of a trial halves the pace.
//   - What is wider than one is questioned, too: at the widest pace, and in every fourth trial,
//     half as many are tried. They stay if they are about as fast.
//   - Nothing is measured while fewer transactions run than may run: then the events are the limit,
//     not the pace.
//
// No threads; the time is passed in.
#ifndef POSTBOX_WORKER_PULLER_APPLY_PACE_H_
#define POSTBOX_WORKER_PULLER_APPLY_PACE_H_

#include <chrono>
#include <cstddef>

namespace postbox::puller {

class ApplyPace {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;
  // The least time and the least commits of each transaction that are measured.
  static constexpr std::chrono::milliseconds kWindow{250};
  static constexpr int kCommits = 4;
  static constexpr double kGain = 1.1;
  static constexpr double kAboutAsFast = 0.95;
  static constexpr std::chrono::milliseconds kFirstRest{250};
  // How long there must have been work without a pause before a trial: a short burst has none.
  static constexpr std::chrono::seconds kSteady{1};
  static constexpr std::chrono::seconds kRestAfterConflict{2};
  static constexpr std::chrono::seconds kLongestRest{30};
  // A trial that cannot be measured for so long is over.
  static constexpr std::chrono::seconds kLongestTrial{2};

  // At most `most` transactions, at least 1.
  explicit ApplyPace(int most) : most_(most) {}

  int width() const { return width_; }
  bool on_trial() const { return before_ != 0; }

  // There is work for one more transaction than may run.
  void Wanted() { wanted_ = true; }
  // A transaction of so many events is committed, which took so long. `running`: how many ran until
  // then, with it.
  void Committed(size_t events, int running, Duration took, TimePoint now);
  // A transaction was the victim of a deadlock, or waited for too long in a trial.
  void Conflicted(TimePoint now);

 private:
  void Judge(double rate, TimePoint now);
  void MaybeTry(TimePoint now);
  void Rest(Duration time, TimePoint now);

  const int most_;
  int width_ = 1;
  int before_ = 0;          // the width before the trial, 0: there is none
  int trials_ = 0;          // that were begun
  double rate_ = 0;         // events a second, of the last window that was no trial
  bool wanted_ = false;     // since the window began
  bool measuring_ = false;  // a window has begun, with a commit
  TimePoint window_begin_{};
  size_t window_events_ = 0;
  int window_commits_ = 0;
  TimePoint trial_begin_{};
  TimePoint last_commit_{};
  TimePoint busy_since_{};
  Duration rest_ = kFirstRest;
  TimePoint rest_until_{};
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_APPLY_PACE_H_

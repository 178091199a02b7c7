// Which appliers of a subscription may apply a batch now. ApplyPace says how many.
//
//   - An applier whose transaction takes longer than kLong is not counted: one slow event must not
//     hold up the other keys. In the minute after a conflict it is kLongAfterConflict, or three
//     times what a transaction takes, if that is more.
//   - An applier whose transaction failed because of others' locks applies it once more while no
//     other one runs. It keeps its batch, and waits for those that run, but not for ever for one
//     that does not count. Until it has had its turn no other applier begins.
//   - In a trial of the pace a deadlock would cost a second. So a transaction of a trial that takes
//     kTrialTimes as long as others did, and kTrialTime more, is cancelled, and has a turn alone.
//
// Thread-safe. The time is passed in, except to AwaitTurn.
#ifndef POSTBOX_WORKER_PULLER_APPLY_GATE_H_
#define POSTBOX_WORKER_PULLER_APPLY_GATE_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <list>
#include <mutex>
#include <optional>

#include "worker/puller/apply_pace.h"

namespace postbox::puller {

class ApplyGate {
 public:
  using TimePoint = ApplyPace::TimePoint;
  static constexpr std::chrono::milliseconds kLong{250};
  static constexpr std::chrono::milliseconds kLongAfterConflict{1000};
  static constexpr int kTrialTimes = 3;
  static constexpr std::chrono::milliseconds kTrialTime{100};
  // How long a turn waits for those that do not count, at least and at most.
  static constexpr std::chrono::seconds kLeastWait{5};
  static constexpr std::chrono::seconds kMostWait{30};

  // An applier that has a batch.
  struct Pass {
    TimePoint since;      // it was let in, had its turn, or committed
    bool shared = false;  // another one was in at the same time
    bool waits = false;   // for its turn
  };
  using Ticket = std::list<Pass>::iterator;

  explicit ApplyGate(int appliers) : pace_(appliers) {}

  // Whether one more may enter. If not, the pace knows that it is wanted.
  bool Open(TimePoint now);
  // Whether one more would be let in beside these, `connected` appliers, of which those without a
  // batch are about to take one. Otherwise as Open.
  bool HasRoomBeside(int connected, TimePoint now);
  // When the gate may open by itself, because a thread is no longer counted.
  TimePoint NextOpening(TimePoint now) const;
  // Lets an applier in, also if the gate is closed.
  Ticket Enter(TimePoint now);
  void Leave(Ticket ticket);

  // How long the next transaction may take, if it is one of a trial.
  std::optional<std::chrono::milliseconds> time_limit() const;
  // A transaction of the applier was committed.
  void Committed(Ticket ticket, size_t events, TimePoint now);
  // A transaction of the applier failed because of locks. True if others ran at the same time: it
  // is to be tried alone.
  bool Conflicted(Ticket ticket, TimePoint now);
  // Waits until it may be tried. False if the puller stops.
  bool AwaitTurn(Ticket ticket);
  void Stop();

  // In the minute before `now`.
  int conflicts(TimePoint now) const;

 private:
  bool Counts(const Pass& pass, TimePoint now) const;
  TimePoint CountsUntil(const Pass& pass) const;
  int Running(TimePoint now) const;
  bool HasTurn(Ticket ticket, TimePoint waits_since) const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  ApplyPace pace_;
  std::list<Pass> inside_;
  std::deque<Ticket> turns_;  // those that wait for their turn
  std::deque<TimePoint> conflicts_;
  TimePoint::duration typical_{0};  // what a transaction takes, of late; 0: not known
  bool stopped_ = false;
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_APPLY_GATE_H_

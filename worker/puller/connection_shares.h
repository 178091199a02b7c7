// How many connections to the database the appliers of a process have.
//
//   - Each subscription has one, all the time. Another one is opened when for kNeedTime there has
//     been work, and no applier with a connection was free for it; one after the other, up to
//     `appliers`.
//   - One more than were in use at the same time, in the last kIdleTime to twice that, is closed.
//     Where each has work now and then, and one would do, all but one are closed.
//   - As long as some subscription has none, no other one opens a second one. If it has tried, and
//     was refused, those that have several close them, all but one each: an idle one at once, a
//     busy one after its batch.
//   - A second one that is refused says that the server, the role or the database is at its limit.
//     Then all close them likewise, and open none for a while (kPause), so that others get in: the
//     limit is shared.
//
// It does not matter why a connection is refused: the text of libpq is for people, and where the
// server is gone there is nothing to close.
#ifndef POSTBOX_WORKER_PULLER_CONNECTION_SHARES_H_
#define POSTBOX_WORKER_PULLER_CONNECTION_SHARES_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>

#include "extension/rules/backoff.h"
#include "worker/puller/failpoint.h"

namespace postbox::puller {

// What the subscriptions of a process know of each other. Thread-safe.
class ConnectionShares {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  static constexpr pubsub::BackoffPolicy kPause{std::chrono::seconds(10), 2.0,
                                                std::chrono::minutes(5)};
  // After so long without a refusal, the next one is the first.
  static constexpr std::chrono::minutes kForget{10};

  // Whether a subscription that has a connection may open another one.
  bool MayHaveMore(TimePoint now) const { return without_ == 0 && now >= pause_until_.load(); }
  // Whether one that has several is to close all but one.
  bool OneEach(TimePoint now) const { return refused_ > 0 || now < pause_until_.load(); }

 private:
  friend class SubscriptionConnections;

  // A second connection was refused.
  void Pause(TimePoint now) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (now < pause_until_.load()) return;
    if (now >= pause_until_.load() + kForget) pauses_.Reset();
    pause_until_ = now + pauses_.Next();
  }

  std::atomic<int> without_ = 0;  // subscriptions that have none
  std::atomic<int> refused_ = 0;  // of them, those that have tried to get one
  std::atomic<TimePoint> pause_until_ = TimePoint();
  std::mutex mutex_;  // of Pause
  pubsub::Backoff pauses_{{TimeOf("connection_pause", kPause.base), kPause.factor, kPause.cap}};
};

// The connections of one subscription. Not thread-safe; the time is passed in.
class SubscriptionConnections {
 public:
  using TimePoint = ConnectionShares::TimePoint;
  static constexpr std::chrono::milliseconds kNeedTime{50};
  static constexpr std::chrono::seconds kIdleTime{10};
  // How often one that may have no other connection looks whether it may.
  static constexpr std::chrono::milliseconds kLookInterval{500};

  // `shares` outlives it.
  explicit SubscriptionConnections(ConnectionShares* shares) : shares_(shares) {
    ++shares_->without_;
  }
  ~SubscriptionConnections() {
    if (open_ > 0) return;
    --shares_->without_;
    if (refused_) --shares_->refused_;
  }
  SubscriptionConnections(const SubscriptionConnections&) = delete;
  SubscriptionConnections& operator=(const SubscriptionConnections&) = delete;

  int open() const { return open_; }

  void Opened(TimePoint now) {
    backoff_.Reset();
    InUse(++open_, now);  // it is needed
    if (open_ > 1) return;
    --shares_->without_;
    if (refused_) --shares_->refused_;
    refused_ = false;
  }
  // One is closed, or lost.
  void Closed() {
    if (--open_ == 0) ++shares_->without_;
  }
  // None could be opened. Returns how long it waits before it tries again.
  std::chrono::milliseconds Refused(TimePoint now) {
    const std::chrono::milliseconds delay = backoff_.Next();
    open_at_ = now + delay;
    if (open_ > 0) {
      shares_->Pause(now);
    } else if (!refused_) {
      refused_ = true;
      ++shares_->refused_;
    }
    return delay;
  }

  // When the next one is to be opened, or when to ask again. `work_at`: there is work, or will be
  // then; `free`: an applier with a connection is free for it.
  TimePoint NextOpen(TimePoint work_at, bool free, TimePoint now) {
    if (open_ == 0) return open_at_;
    if (work_at > now || free) {
      unmet_since_.reset();
      return work_at > now ? work_at : now + kNeedTime;
    }
    if (!unmet_since_) unmet_since_ = now;
    if (!shares_->MayHaveMore(now)) return now + kLookInterval;
    return std::max(open_at_, *unmet_since_ + kNeedTime);
  }

  // Whether one is to be closed, even if there is work for it.
  bool MustClose(TimePoint now) const { return open_ > 1 && shares_->OneEach(now); }
  // So many are in use.
  void InUse(int count, TimePoint now) {
    if (now >= window_end_) {
      const auto idle = TimeOf("idle_time", kIdleTime);
      before_ = now < window_end_ + idle ? peak_ : 0;
      peak_ = 0;
      window_end_ = now + idle;
    }
    peak_ = std::max(peak_, count);
  }
  // Whether one that is not in use is to be closed; `count` are.
  bool TooMany(int count, TimePoint now) {
    InUse(count, now);
    return open_ > std::max({1, before_, peak_});
  }
  // When to ask TooMany again.
  TimePoint NextLook() const { return open_ > 1 ? window_end_ : TimePoint::max(); }

 private:
  ConnectionShares* const shares_;
  int open_ = 0;
  bool refused_ = false;  // it has none, and the last try was refused
  TimePoint open_at_{};
  std::optional<TimePoint> unmet_since_;  // there is work that no applier takes
  // The most in use at the same time, since the window began and in the one before it.
  int peak_ = 0;
  int before_ = 0;
  TimePoint window_end_{};
  pubsub::Backoff backoff_{pubsub::kReconnectBackoff};
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_CONNECTION_SHARES_H_

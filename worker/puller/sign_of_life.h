// How long a thread has owed a sign for which it was asked. One thread asks, at any interval: the
// time in which it did not ask is no silence. Thread-safe; the time is passed in.
#ifndef POSTBOX_WORKER_PULLER_SIGN_OF_LIFE_H_
#define POSTBOX_WORKER_PULLER_SIGN_OF_LIFE_H_

#include <atomic>
#include <chrono>

namespace postbox::puller {

class SignOfLife {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // False: it owes a sign already.
  bool Ask(TimePoint now) {
    if (owed_) return false;
    asked_at_ = now;
    owed_ = true;
    return true;
  }
  // By the thread that was asked.
  void Given() { owed_ = false; }

  // 0 if it owes none. For the thread that asks.
  std::chrono::steady_clock::duration Silence(TimePoint now) const {
    return owed_ ? now - asked_at_ : std::chrono::steady_clock::duration::zero();
  }

 private:
  TimePoint asked_at_{};  // of the thread that asks
  std::atomic<bool> owed_ = false;
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_SIGN_OF_LIFE_H_

// What a server of the benchmarks answers after a round trip: a queue in the order of the
// deadlines, which is that of arrival since the delay is the same for all, and one thread. It wakes
// up 4,000 times a second at most, so that what waits costs next to nothing.
#ifndef POSTBOX_BENCH_DELAY_QUEUE_H_
#define POSTBOX_BENCH_DELAY_QUEUE_H_

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

class DelayQueue {
 public:
  using Clock = std::chrono::steady_clock;

  explicit DelayQueue(std::chrono::milliseconds delay) : delay_(delay) {
    if (delay_.count() > 0) std::thread([this] { Work(); }).detach();
  }

  // Runs `what` after the delay; at once if there is none. It lives as long as the process does.
  void Run(std::function<void()> what) {
    if (delay_.count() == 0) {
      what();
      return;
    }
    const auto due = Clock::now() + delay_;
    const std::lock_guard<std::mutex> lock(mutex_);
    waiting_.emplace_back(due, std::move(what));
    if (waiting_.size() == 1) not_empty_.notify_one();
  }

 private:
  static constexpr std::chrono::microseconds kStep{250};

  [[noreturn]] void Work() {
    std::vector<std::function<void()>> due;
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      not_empty_.wait(lock, [this] { return !waiting_.empty(); });
      const auto first = waiting_.front().first;
      lock.unlock();
      std::this_thread::sleep_until(std::max(first, Clock::now() + kStep));
      lock.lock();
      const auto now = Clock::now();
      while (!waiting_.empty() && waiting_.front().first <= now) {
        due.push_back(std::move(waiting_.front().second));
        waiting_.pop_front();
      }
      lock.unlock();
      for (const auto& what : due) what();
      due.clear();
      lock.lock();
    }
  }

  const std::chrono::milliseconds delay_;
  std::mutex mutex_;
  std::condition_variable not_empty_;
  std::deque<std::pair<Clock::time_point, std::function<void()>>> waiting_;
};

#endif  // POSTBOX_BENCH_DELAY_QUEUE_H_

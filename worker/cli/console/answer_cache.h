// An answer that is costly to make, kept for a while for all users: however many ask, it is made
// once in its life, and by one of them at a time. Those who ask meanwhile get the old one, or none.
//
// The time is an argument. Thread-safe.
#ifndef POSTBOX_WORKER_CLI_CONSOLE_ANSWER_CACHE_H_
#define POSTBOX_WORKER_CLI_CONSOLE_ANSWER_CACHE_H_

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

namespace postbox::cli {

class AnswerCache {
 public:
  using Clock = std::chrono::steady_clock;

  explicit AnswerCache(std::chrono::seconds life) : life_(life) {}

  // Nothing if there is none yet, and another thread makes it.
  std::optional<std::string> Get(Clock::time_point now, const std::function<std::string()>& make) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (answer_ && now - made_ < life_) return answer_;
      if (making_) return answer_;
      making_ = true;
    }
    std::string answer;
    try {
      answer = make();
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex_);
      making_ = false;
      throw;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    making_ = false;
    made_ = now;
    answer_ = std::move(answer);
    return answer_;
  }

 private:
  const std::chrono::seconds life_;
  std::mutex mutex_;
  bool making_ = false;                // guarded
  Clock::time_point made_;             // guarded
  std::optional<std::string> answer_;  // guarded
};

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_CONSOLE_ANSWER_CACHE_H_

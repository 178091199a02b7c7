// The signals that control the process: SIGTERM and SIGINT end it, SIGHUP asks for a new look at
// the configuration.
//
// A separate thread takes them. So the time at which the process was told to end is known even if
// the main thread was busy then, and the grace period counts from it.
#ifndef POSTBOX_WORKER_PULLER_SIGNALS_H_
#define POSTBOX_WORKER_PULLER_SIGNALS_H_

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

namespace postbox::puller {

class Signals {
 public:
  using Clock = std::chrono::steady_clock;

  // Made on the main thread before there is another one, because the threads that start later must
  // inherit the mask. Ignores SIGPIPE.
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // Readable from the first signal to end on, or -1.
  int end_fd() const { return end_fd_; }
  // When the first signal to end has come.
  std::optional<Clock::time_point> end_at();
  enum Order { kNone, kEnd, kReload };
  // Waits at most `time` for a signal. After a signal to end it is always kEnd, at once.
  Order Wait(std::chrono::milliseconds time);

 private:
  void Watch();

  int signal_fd_ = -1;
  int end_fd_ = -1;
  int stop_fd_ = -1;  // readable when the thread is to end
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Clock::time_point> end_at_;  // guarded
  bool reload_ = false;                      // guarded
  std::thread thread_;
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_SIGNALS_H_

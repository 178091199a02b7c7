// Lines on their way to a file descriptor, such as standard error. They never hold up the caller.
//
// A pipe that nothing reads takes 64 kB. From then on write() waits, and so would each thread that
// logs: the puller would stop for good, and SIGTERM would not end it.
//
//   - Push() puts a line into the queue and returns. A thread of the queue writes it. The file is
//     shared with other processes, so it is not made non-blocking.
//   - The queue is bounded. When it is full, its oldest lines are dropped and counted. A line in
//     their place says how many.
//   - A line that cannot be written, for example since the disk is full, is dropped likewise.
//   - Finish() waits for the last lines, but not for longer than it is told.
//   - A line of up to 4 kB is one write(), so those of several processes do not mix in a pipe.
//
// The thread cannot be ended while write() waits. It is left to the end of the process, and keeps
// what it needs. (The asynchronous loggers of spdlog wait for their thread when the process ends.)
#ifndef POSTBOX_WORKER_BASE_LINE_QUEUE_H_
#define POSTBOX_WORKER_BASE_LINE_QUEUE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace postbox {

class LineQueue {
 public:
  struct Limits {
    std::size_t lines = 8192;
    std::size_t bytes = std::size_t{4} << 20;  // one line may have more
  };
  // The line that says how many were dropped, with its end.
  using DroppedLine = std::function<std::string(uint64_t count)>;

  // How long the end of a process waits for a reader.
  static constexpr std::chrono::milliseconds kLastWait{1000};

  explicit LineQueue(int fd);
  LineQueue(int fd, Limits limits);
  ~LineQueue();  // what waits is still written, if the process goes on
  LineQueue(const LineQueue&) = delete;
  LineQueue& operator=(const LineQueue&) = delete;

  // Any thread, for each of these. `line` has its end of line, if it is to have one.
  void Push(std::string line);
  void SayDropped(DroppedLine line);
  // True when everything is written, false if `timeout` was over before.
  bool Finish(std::chrono::milliseconds timeout = kLastWait);

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

// Those of the process, made at their first use.
LineQueue& StandardOutput();
LineQueue& StandardError();

}  // namespace postbox

#endif  // POSTBOX_WORKER_BASE_LINE_QUEUE_H_

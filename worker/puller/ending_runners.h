// The subscriptions that are being stopped, because their configuration has changed or because the
// process ends. Each has a thread, so that what one of them waits for holds up no other, and so
// that the main thread goes on hearing signals.
#ifndef POSTBOX_WORKER_PULLER_ENDING_RUNNERS_H_
#define POSTBOX_WORKER_PULLER_ENDING_RUNNERS_H_

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "worker/puller/runner.h"

namespace postbox::puller {

// For one thread.
class EndingRunners {
 public:
  using Clock = Runner::Clock;

  EndingRunners();
  ~EndingRunners();  // waits for all
  EndingRunners(const EndingRunners&) = delete;
  EndingRunners& operator=(const EndingRunners&) = delete;

  // None of them pulls any more when it returns. They end before `end`, or 2 s from now if that is
  // later.
  void Add(std::vector<std::unique_ptr<Runner>> runners, Clock::time_point end);
  // All end before `end`, or 2 s from now if that is later, if they have more time otherwise.
  void EndBy(Clock::time_point end);
  // Waits until all have ended. False, at once, when `interrupt`, a descriptor, becomes readable
  // before.
  bool Wait(int interrupt);
  // Waits until all have ended, and returns them.
  std::vector<std::unique_ptr<Runner>> Take();

 private:
  std::vector<std::unique_ptr<Runner>> runners_;
  std::vector<std::thread> threads_;  // that have not been waited for
  std::uint64_t running_ = 0;         // those that ended_fd_ has not told of
  const int ended_fd_;                // counts those that have ended
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_ENDING_RUNNERS_H_

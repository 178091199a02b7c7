#include "worker/puller/ending_runners.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace postbox::puller {

EndingRunners::EndingRunners() : ended_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (ended_fd_ < 0) {
    throw std::system_error(errno, std::generic_category(),
                            "no file descriptor for ended subscriptions");
  }
}

EndingRunners::~EndingRunners() {
  Take();
  close(ended_fd_);
}

void EndingRunners::Add(std::vector<std::unique_ptr<Runner>> runners, Clock::time_point end) {
  for (const auto& runner : runners) runner->StopPulling();
  for (auto& runner : runners) {
    const auto finish = [this, end, ending = runner.get()] {
      ending->Finish(end);
      eventfd_write(ended_fd_, 1);
    };
    ++running_;
    runners_.push_back(std::move(runner));
    try {
      threads_.emplace_back(finish);
    } catch (const std::system_error&) {
      finish();  // one after the other, where there is no room for another thread
    }
  }
}

void EndingRunners::EndBy(Clock::time_point end) {
  for (const auto& runner : runners_) runner->EndBy(end);
}

bool EndingRunners::Wait(int interrupt) {
  while (running_ > 0) {
    pollfd fds[] = {{interrupt, POLLIN, 0}, {ended_fd_, POLLIN, 0}};
    if (poll(fds, 2, -1) < 0) continue;
    if (fds[0].revents != 0) return false;
    std::uint64_t ended = 0;
    if (eventfd_read(ended_fd_, &ended) == 0) running_ -= ended;
  }
  return true;
}

std::vector<std::unique_ptr<Runner>> EndingRunners::Take() {
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  std::uint64_t ended = 0;
  eventfd_read(ended_fd_, &ended);
  running_ = 0;
  return std::exchange(runners_, {});
}

}  // namespace postbox::puller

#include "worker/puller/signals.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace postbox::puller {

Signals::Signals() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, signal);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal_fd_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  end_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  stop_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  // Without them no signal would ever be heard.
  if (signal_fd_ < 0 || end_fd_ < 0 || stop_fd_ < 0) {
    throw std::system_error(errno, std::generic_category(), "no file descriptor for signals");
  }
  thread_ = std::thread([this] { Watch(); });
}

Signals::~Signals() {
  eventfd_write(stop_fd_, 1);
  thread_.join();
  for (int fd : {signal_fd_, end_fd_, stop_fd_}) close(fd);
}

void Signals::Watch() {
  pollfd fds[] = {{signal_fd_, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
  while (true) {
    if (poll(fds, 2, -1) < 0) continue;
    if (fds[1].revents != 0) return;
    signalfd_siginfo taken{};
    if (read(signal_fd_, &taken, sizeof(taken)) != sizeof(taken)) continue;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (taken.ssi_signo == SIGHUP) {
      reload_ = true;
    } else if (!end_at_) {
      end_at_ = Clock::now();
      eventfd_write(end_fd_, 1);
    }
    changed_.notify_all();
  }
}

std::optional<Signals::Clock::time_point> Signals::end_at() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return end_at_;
}

Signals::Order Signals::Wait(std::chrono::milliseconds time) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, time, [this] { return end_at_ || reload_; });
  if (end_at_) return kEnd;
  return std::exchange(reload_, false) ? kReload : kNone;
}

}  // namespace postbox::puller

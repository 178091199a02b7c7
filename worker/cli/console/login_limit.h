// How often an address may try to log in. After kFree failures in a row it waits: a second, then
// twice as long after each further failure, up to kLongestWait. A success ends that.
//
// All addresses together may try kMostOfAll times in kWindow, so many addresses do not help, and
// the database does not see more.
//
// Plain C++; the time is an argument. Not thread-safe.
#ifndef POSTBOX_WORKER_CLI_CONSOLE_LOGIN_LIMIT_H_
#define POSTBOX_WORKER_CLI_CONSOLE_LOGIN_LIMIT_H_

#include <chrono>
#include <cstddef>
#include <deque>
#include <map>
#include <string>

namespace postbox::cli {

class LoginLimit {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int kFree = 5;
  static constexpr std::chrono::seconds kLongestWait{60};
  static constexpr std::chrono::seconds kForget{900};
  static constexpr std::size_t kMostOfAll = 30;
  static constexpr std::chrono::seconds kWindow{60};
  static constexpr std::size_t kMostAddresses = 1000;

  // How long the address has to wait; 0: it may try now, and the attempt counts as a failure unless
  // Succeeded() follows. So attempts at the same time count, too.
  std::chrono::seconds Try(const std::string& address, Clock::time_point now);
  void Succeeded(const std::string& address);

 private:
  struct Failures {
    int count = 0;
    Clock::time_point last;
  };
  void Forget(Clock::time_point now);

  std::map<std::string, Failures> failures_;
  std::deque<Clock::time_point> attempts_;  // of all, in the window
};

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_CONSOLE_LOGIN_LIMIT_H_

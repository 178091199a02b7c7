// The confirmation of an action on all events that match a filter. A preview counts them and makes
// a token, which says what was counted and how many there were. The action needs the token, and
// takes filter and count from it: what the user has seen is what is done.
//
// A token is of one session, and expires. Plain C++; the time is an argument.
#ifndef POSTBOX_WORKER_CLI_CONSOLE_CONFIRMATION_H_
#define POSTBOX_WORKER_CLI_CONSOLE_CONFIRMATION_H_

#include <chrono>
#include <optional>
#include <string>

namespace postbox::cli {

class Confirmations {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::minutes kLife{10};

  // `key`: a secret of the session.
  explicit Confirmations(std::string key) : key_(std::move(key)) {}

  // `order`: what is to be done, as a text.
  std::string Issue(const std::string& order, Clock::time_point now) const;
  // The order; nothing if the token is not one of these, or has expired.
  std::optional<std::string> Open(const std::string& token, Clock::time_point now) const;

 private:
  const std::string key_;
};

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_CONSOLE_CONFIRMATION_H_

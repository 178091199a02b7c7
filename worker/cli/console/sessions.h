// The sessions of the console, by the token in the cookie of the browser.
//
// A session ends after it has not been used for an idle time, after its longest life, or when it is
// told to. There are never more than `most`, and of one role never more than `most_of_role`: a
// log-in beyond that is refused, so each session that lives keeps its place, and a role without
// rights leaves room for others. The table has digests of tokens, so how long a search takes says
// nothing about a token.
//
// The time is an argument. Thread-safe.
#ifndef POSTBOX_WORKER_CLI_CONSOLE_SESSIONS_H_
#define POSTBOX_WORKER_CLI_CONSOLE_SESSIONS_H_

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "worker/cli/console/session.h"

namespace postbox::cli {

class Sessions {
 public:
  using Clock = std::chrono::steady_clock;
  struct Limits {
    std::size_t most = 32;
    std::size_t most_of_role = 8;
    std::chrono::seconds idle = std::chrono::minutes(15);
    std::chrono::seconds longest = std::chrono::hours(12);
  };

  explicit Sessions(Limits limits) : limits_(limits) {}

  // Whether there is room for one more.
  bool HasRoom(Clock::time_point now);
  // The token; nothing if there are too many, or too many of the role.
  std::optional<std::string> Begin(std::shared_ptr<Session> session, Clock::time_point now);
  // Null if there is none, or it is over. It is used by that.
  std::shared_ptr<Session> Find(const std::string& token, Clock::time_point now);
  void End(const std::string& token);
  // Ends those whose time is over. Returns how many are left.
  std::size_t EndOld(Clock::time_point now);

 private:
  struct Entry {
    std::shared_ptr<Session> session;
    Clock::time_point begun, used;
  };
  bool IsOver(const Entry& entry, Clock::time_point now) const;
  std::size_t EndOldLocked(Clock::time_point now);

  const Limits limits_;
  std::mutex mutex_;
  std::map<std::string, Entry> sessions_;  // guarded; by the digest of the token
};

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_CONSOLE_SESSIONS_H_

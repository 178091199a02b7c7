// Failpoints of the puller, for tests. The environment variable POSTBOX_FAILPOINT lists them as
// extension/rules/failpoint_list.h says, for instance after_commit_before_ack=kill. The names are
// before_apply, after_answer (of a statement), after_commit_before_ack, after_ack, dead_letter (one
// is on its way to its topic) and main_loop. Actions are
//
//   kill   the process ends itself with SIGKILL
//   pause  the process stops itself with SIGSTOP when it comes here first; SIGCONT lets it go on
//   hang   the thread that comes here first stays for ever; the others go on
//
// The other actions are ignored. A time of the puller's own can be given another length, in
// milliseconds: connect_time=2000. TimeOf() is where the names of these are.
#ifndef POSTBOX_WORKER_PULLER_FAILPOINT_H_
#define POSTBOX_WORKER_PULLER_FAILPOINT_H_

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>

#include "extension/rules/failpoint_list.h"

namespace postbox::puller {

inline std::string FailpointAction(std::string_view name) {
  static const std::string list = [] {
    const char* value = std::getenv("POSTBOX_FAILPOINT");
    return std::string(value == nullptr ? "" : value);
  }();
  return std::string(pubsub::FindFailpoint(list, name));
}

// How long something lasts: `time`, unless the list says something else.
inline std::chrono::milliseconds TimeOf(std::string_view name, std::chrono::milliseconds time) {
  const std::string action = FailpointAction(name);
  return action.empty() ? time : std::chrono::milliseconds(std::atoll(action.c_str()));
}

inline void Failpoint(std::string_view name) {
  const std::string action = FailpointAction(name);
  if (action == "kill") std::raise(SIGKILL);
  static std::atomic<bool> paused = false;
  if (action == "pause" && !paused.exchange(true)) std::raise(SIGSTOP);
  if (action == "hang" && !paused.exchange(true)) {
    while (true) pause();
  }
}

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_FAILPOINT_H_

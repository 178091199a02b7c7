// Failpoints of the puller, for tests. The environment variable POSTBOX_FAILPOINT lists them as
// proto/rules/failpoint_list.h says, for instance after_commit_before_ack=kill. The names are
// before_apply, after_commit_before_ack and after_ack. The only action here is kill: the process
// ends itself with SIGKILL. The other actions are ignored.
#ifndef POSTBOX_WORKER_PULLER_FAILPOINT_H_
#define POSTBOX_WORKER_PULLER_FAILPOINT_H_

#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>

#include "proto/rules/failpoint_list.h"

namespace postbox::puller {

inline void Failpoint(std::string_view name) {
  static const std::string list = [] {
    const char* value = std::getenv("POSTBOX_FAILPOINT");
    return std::string(value == nullptr ? "" : value);
  }();
  if (pubsub::FindFailpoint(list, name) == "kill") std::raise(SIGKILL);
}

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_FAILPOINT_H_

// Crashes on request, for tests: POSTBOX_FAILPOINT="after_commit_before_ack=kill,..." ends the
// process with SIGKILL where a failpoint of that name is passed. Names: before_apply,
// after_commit_before_ack, after_ack.
#ifndef POSTBOX_WORKER_PULLER_FAILPOINT_H_
#define POSTBOX_WORKER_PULLER_FAILPOINT_H_

#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>

namespace postbox::puller {

inline void Failpoint(std::string_view name) {
  static const std::string setting = [] {
    const char* value = std::getenv("POSTBOX_FAILPOINT");
    return value == nullptr ? std::string() : "," + std::string(value) + ",";
  }();
  if (setting.empty()) return;
  if (setting.find("," + std::string(name) + "=kill,") != std::string::npos) std::raise(SIGKILL);
}

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_FAILPOINT_H_

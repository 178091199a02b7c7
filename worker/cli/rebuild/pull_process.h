// `postbox pull` as a child process, which ends when its parent does.
#ifndef POSTBOX_WORKER_CLI_REBUILD_PULL_PROCESS_H_
#define POSTBOX_WORKER_CLI_REBUILD_PULL_PROCESS_H_

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

#include "worker/puller/pull.h"

namespace postbox::cli {

class PullProcess {
 public:
  // Pulls `subscription`, with the other options of `pull`. To be called on the main thread: the
  // child ends with the thread that has made it.
  static std::optional<PullProcess> Start(const puller::PullOptions& pull,
                                          const std::string& subscription);

  // Whether it runs. If not, `status` is its exit status, or 128 and the signal.
  bool Running(int* status);
  // Ends it within this time, or kills it then.
  void Stop(std::chrono::seconds time);

 private:
  explicit PullProcess(pid_t pid) : pid_(pid) {}

  pid_t pid_;  // 0: it has ended
};

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_REBUILD_PULL_PROCESS_H_

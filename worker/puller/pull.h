// `postbox pull`: receives the messages of the subscriptions that the database names in
// postbox.subscription, applies them there, and acknowledges what was committed.
#ifndef POSTBOX_WORKER_PULLER_PULL_H_
#define POSTBOX_WORKER_PULLER_PULL_H_

#include <string>
#include <vector>

namespace postbox::puller {

struct PullOptions {
  std::string dsn;                         // libpq connection string or URI
  std::vector<std::string> subscriptions;  // names in postbox.subscription; none: all enabled
  std::string endpoint;                    // empty: the database's postbox.endpoint
  std::string project;                     // empty: the database's postbox.project_id
  int grace_period_seconds = 30;
  std::string log_format = "text";  // or "json"
};

// Runs until SIGTERM or SIGINT. The exit code: 0 after a clean shutdown, 1 after an error that was
// logged. SIGHUP has the configuration read again at once; otherwise that happens every 10 s.
int RunPull(const PullOptions& options);

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_PULL_H_

// `postbox pull`: receives the messages of the subscriptions that the database names in
// postbox.subscription, applies them there, and acknowledges what was committed.
#ifndef POSTBOX_WORKER_PULLER_PULL_H_
#define POSTBOX_WORKER_PULLER_PULL_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "worker/pubsub/traces/span.h"

namespace postbox::puller {

struct PullOptions {
  std::string dsn;                         // libpq connection string or URI; PG* complete it
  std::vector<std::string> subscriptions;  // names in postbox.subscription; none: all
  std::string endpoint;                    // empty: postbox.endpoint of the database
  std::string project;                     // empty: postbox.project_id of the database
  // The files of credentials on this machine, by the names that the database has for them: they
  // take the place of what it says of them.
  std::map<std::string, std::string> credentials;
  int grace_period_seconds = 30;    // from the signal to the end of the process; 2 at least
  std::string log_format = "text";  // or "json"
  std::string http;                 // where /metrics and probes are served; empty: nowhere
  // Where traces go (proto/rules/otlp_endpoint.h); empty: nowhere. RunPull makes `spans` of it.
  std::string otlp_endpoint;
  std::shared_ptr<pubsub::SpanSink> spans{};
};

// Needs a connection to the database for the configuration, one for each subscription, and more as
// their appliers need them (connection_shares.h).
// Runs until SIGTERM or SIGINT. Returns the exit status: 0 after a clean shutdown, 1 after an
// error, which was logged. The configuration is read again every 10 s, and at once after SIGHUP.
int RunPull(const PullOptions& options);

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_PULL_H_

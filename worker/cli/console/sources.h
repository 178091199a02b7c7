// What the console has besides the database of a session: the charts, and Pub/Sub. It is the same
// for all sessions, and read as the role of --dsn, so each answer from it asks the database first
// whether the role of the session may have it.
#ifndef POSTBOX_WORKER_CLI_CONSOLE_SOURCES_H_
#define POSTBOX_WORKER_CLI_CONSOLE_SOURCES_H_

#include <string>

#include "worker/cli/console/answer_cache.h"
#include "worker/cli/console/broker_place.h"
#include "worker/cli/console/call.h"
#include "worker/cli/console/metric_history.h"

namespace postbox::cli {

struct Sources {
  static constexpr std::chrono::seconds kDifferencesLife{30};

  MetricHistory charts;
  BrokerPlace broker;
  std::string provision_file;  // empty: what the database needs
  AnswerCache differences{kDifferencesLife};
};

// `range`: 900, 3600 or 21600 seconds.
Answer ReadCharts(Session* session, const Sources& sources, const Arguments& arguments);
// The publications, with the rate at which they publish.
Answer ReadPublications(Session* session, const Sources& sources, const Arguments& arguments);
// The lanes of `publication`.
Answer ReadLanes(Session* session, const Arguments& arguments);
// What `postbox provision --dry-run` finds.
Answer ReadDifferences(Session* session, Sources* sources);

// What a seek would do: {"subscription": ..., "time" or "snapshot": ..., "reason": ...}
Answer PreviewSeek(Session* session, Sources* sources, const JsonValue& order);
// The same with "skip": true, if messages may be skipped.
Answer ActSeek(Session* session, Sources* sources, const JsonValue& order);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_CONSOLE_SOURCES_H_

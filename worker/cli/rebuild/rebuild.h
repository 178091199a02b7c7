// `postbox pull --rebuild PROJECTION`: rebuilds the target of a projection from what Pub/Sub
// delivers once more.
//
//   1. A Pub/Sub subscription is created on the topic of the live one, and moved back; or one that
//      exists is taken.
//   2. postbox.rebuild_projection creates the shadow.
//   3. A second process, `postbox pull --subscription rebuild:...`, applies the events to it. It
//      ends with this one.
//   4. When postbox.rebuild_status says that the shadow has caught up, postbox.finish_rebuild
//      replaces the rows.
//   5. The Pub/Sub subscription is deleted.
//
// Killed at any point and started again, it goes on. What it knows of an earlier run is in the row
// of postbox.rebuild. Before step 2 there is none, so step 1 is done again: the subscription has a
// name that follows from the projection, and to move it back twice is harmless. Between the steps 4
// and 5 the row says that the subscription is left.
#ifndef POSTBOX_WORKER_CLI_REBUILD_REBUILD_H_
#define POSTBOX_WORKER_CLI_REBUILD_REBUILD_H_

#include <string>
#include <vector>

#include "worker/puller/pull.h"

namespace postbox::cli {

struct RebuildOptions {
  std::string projection;
  std::string since;     // RFC 3339
  std::string snapshot;  // or this
  bool now = false;      // or this
  std::vector<std::string> keys;
  std::string absent = "keep";
  std::string lagging = "wait";
  bool dry_run = false;
  bool cancel = false;
};

// Exit status: 0 if the rows were replaced or the rebuild was cancelled as asked, 1 after an error,
// which was printed, 3 after SIGTERM or SIGINT.
int RunRebuild(const puller::PullOptions& pull, const RebuildOptions& options);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_REBUILD_REBUILD_H_

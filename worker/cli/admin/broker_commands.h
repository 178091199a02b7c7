// Commands of an operator on Pub/Sub itself: what is there, a message to try something out, and
// seeking. The database is asked only if --project is missing.
#ifndef POSTBOX_WORKER_CLI_ADMIN_BROKER_COMMANDS_H_
#define POSTBOX_WORKER_CLI_ADMIN_BROKER_COMMANDS_H_

#include <optional>
#include <string>
#include <vector>

#include "worker/cli/base/place_options.h"

namespace postbox::cli {

struct ListOptions {
  PlaceOptions broker;
  bool json = false;
};

struct PublishOptions {
  PlaceOptions broker;
  std::string topic;
  std::optional<std::string> data;      // nothing: standard input
  std::string key;                      // the ordering key; may be empty
  std::vector<std::string> attributes;  // NAME=VALUE
};

struct TailOptions {
  PlaceOptions broker;
  std::string subscription;
  bool ack = false;  // false: messages are given back at the end
  int count = 0;     // how many messages; 0: until SIGINT or SIGTERM
};

struct SeekOptions {
  PlaceOptions broker;
  std::string subscription;
  std::string time;      // RFC 3339
  std::string snapshot;  // or this
};

struct SnapshotOptions {
  PlaceOptions broker;
  std::string snapshot;
  std::string subscription;  // of which it is created; unused when it is deleted
};

// Each returns the exit status: 0, or 1 after an error, which was printed on standard error.
int RunTopics(const ListOptions& options);
int RunSubscriptions(const ListOptions& options);
int RunPublish(const PublishOptions& options);
int RunTail(const TailOptions& options);
int RunSeek(const SeekOptions& options);
int RunSnapshotCreate(const SnapshotOptions& options);
int RunSnapshotDelete(const SnapshotOptions& options);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_ADMIN_BROKER_COMMANDS_H_

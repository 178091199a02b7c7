// The Pub/Sub subscription of a rebuild.
#ifndef POSTBOX_WORKER_CLI_REBUILD_EVENT_SOURCE_H_
#define POSTBOX_WORKER_CLI_REBUILD_EVENT_SOURCE_H_

#include <string>

#include "worker/cli/base/open_place.h"
#include "worker/cli/rebuild/rebuild.h"

namespace postbox::cli {

// What went wrong, and what to do about it; empty if nothing did.
struct Trouble {
  std::string message;
  std::string remedy;
  bool none() const { return message.empty(); }
};

class EventSource {
 public:
  EventSource(const OpenPlace* broker, const RebuildOptions* options)
      : broker_(broker), options_(options) {}

  // Creates the subscription `name` on the topic of the live one, like that one, or takes the one
  // that is there from an earlier run, and moves it to where the options say. Both full names.
  Trouble Create(const std::string& live, const std::string& name);
  // Moves a subscription that exists already to where the options say, if they do.
  Trouble Take(const std::string& name);
  // It need not be there.
  Trouble Delete(const std::string& name);

 private:
  Trouble CheckRetention(const pb::Subscription& subscription, bool is_new) const;
  Trouble Seek(const std::string& name);

  const OpenPlace* const broker_;
  const RebuildOptions* const options_;
};

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_REBUILD_EVENT_SOURCE_H_

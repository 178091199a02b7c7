// Pub/Sub, for what the console asks of it: a place that the command line gives, or the database of
// --dsn. It connects when it is first needed.
#ifndef POSTBOX_WORKER_CLI_CONSOLE_BROKER_PLACE_H_
#define POSTBOX_WORKER_CLI_CONSOLE_BROKER_PLACE_H_

#include <chrono>
#include <mutex>
#include <optional>
#include <utility>

#include "worker/cli/base/open_place.h"

namespace postbox::cli {

class BrokerPlace {
 public:
  static constexpr char kNotConfigured[] =
      "the console makes no calls to Pub/Sub: start it with --broker, and with --project and "
      "--endpoint unless the database of --dsn has them";

  // Without a place nothing is called.
  explicit BrokerPlace(std::optional<PlaceOptions> options) : options_(std::move(options)) {}

  const std::optional<PlaceOptions>& options() const { return options_; }
  // Null after an error. What is returned lives as long as this object, and may be used by several
  // threads.
  const OpenPlace* Open(Failure* failure) {
    // An attempt without credentials takes as long as its time-outs, and each that waits for it
    // holds a thread.
    const std::unique_lock<std::timed_mutex> lock(mutex_, kLongestWait);
    if (!lock.owns_lock()) {
      *failure = {"another request connects to Pub/Sub", "try again in a few seconds"};
      return nullptr;
    }
    if (!place_) place_ = Connect(*options_, failure);
    return place_ ? &*place_ : nullptr;
  }

 private:
  static constexpr std::chrono::seconds kLongestWait{2};

  const std::optional<PlaceOptions> options_;
  std::timed_mutex mutex_;
  std::optional<OpenPlace> place_;  // guarded
};

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_CONSOLE_BROKER_PLACE_H_

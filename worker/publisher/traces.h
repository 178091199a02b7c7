// Where the traces of this worker go: the exporter of postbox.otlp_endpoint.
#ifndef POSTBOX_WORKER_PUBLISHER_TRACES_H_
#define POSTBOX_WORKER_PUBLISHER_TRACES_H_

#include <cstdint>
#include <memory>
#include <string>

#include "extension/base/guard.h"
#include "worker/pubsub/traces/trace_exporter.h"

namespace postbox::publisher {

class Traces {
 public:
  // Another endpoint: another exporter, which the clients that are made from now on have.
  void FollowSettings();
  // Counts what was dropped (postbox.metrics), and writes it into the log once a minute.
  void Look();
  // Exports what waits, in half a second at most, and ends the thread.
  void Stop() noexcept;

 private:
  void CountDropped();

  std::string endpoint_;
  std::shared_ptr<pubsub::TraceExporter> exporter_;  // null: traces are off
  std::uint64_t counted_ = 0;                        // of what it has dropped
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_TRACES_H_

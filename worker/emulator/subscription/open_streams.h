// The open streams of a subscription: their ack deadlines, and what each holds of what its flow
// control allows.
#ifndef POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_OPEN_STREAMS_H_
#define POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_OPEN_STREAMS_H_

#include <algorithm>
#include <cstdint>
#include <list>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "worker/emulator/subscription/delivery_budget.h"
#include "worker/emulator/subscription/entry.h"

namespace postbox::emulator {

using KeyList = std::list<OrderedKey*>;

// The most that a stream holds unacknowledged. 0 and below mean no limit.
struct FlowControl {
  int64_t max_messages = 0;
  int64_t max_bytes = 0;
};

struct StreamState {
  FlowControl flow_control;
  absl::Duration ack_deadline;
  int64_t messages = 0;  // leased
  int64_t bytes = 0;
  KeyList ready_keys;  // keys whose leased messages belong to this stream

  DeliveryBudget Budget() const {
    DeliveryBudget budget;
    budget.stream_empty = messages == 0;
    if (flow_control.max_messages > 0) {
      budget.messages = std::min(budget.messages, flow_control.max_messages - messages);
    }
    if (flow_control.max_bytes > 0) budget.flow_bytes = flow_control.max_bytes - bytes;
    return budget;
  }
};

class OpenStreams {
 public:
  StreamId Open(FlowControl flow_control, absl::Duration ack_deadline) {
    auto stream = std::make_unique<StreamState>();
    stream->flow_control = flow_control;
    stream->ack_deadline = ack_deadline;
    const StreamId id = NewOwner();
    streams_.emplace(id, std::move(stream));
    return id;
  }
  // An id that no stream has: a unary Pull owns what it leases, and does not come again.
  StreamId NewOwner() { return ++last_; }
  // Null if the stream is closed.
  StreamState* Find(StreamId id) const {
    const auto found = streams_.find(id);
    return found == streams_.end() ? nullptr : found->second.get();
  }
  // What was open under this id; null if nothing was.
  std::unique_ptr<StreamState> Close(StreamId id) {
    auto node = streams_.extract(id);
    return node.empty() ? nullptr : std::move(node.mapped());
  }
  void ForgetReadyKeys() {
    for (auto& [id, stream] : streams_) stream->ready_keys.clear();
  }

 private:
  absl::flat_hash_map<StreamId, std::unique_ptr<StreamState>> streams_;
  StreamId last_ = 0;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_OPEN_STREAMS_H_

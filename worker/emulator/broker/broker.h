// The state of the emulator and all operations on it, by what they are about. Without gRPC. Errors
// are absl::Status with the code that the service would return, and google.rpc details as payloads
// (status.h). Safe for several threads: guarded_state.h has the mutex. It is not held while a
// Listener is called.
//
// Time passes only when Tick() is called. Every Pull, ack and seek first ticks its subscription, so
// that a lease that is over does not count.
#ifndef POSTBOX_WORKER_EMULATOR_BROKER_BROKER_H_
#define POSTBOX_WORKER_EMULATOR_BROKER_BROKER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "worker/emulator/broker/broker_options.h"
#include "worker/emulator/broker/clock.h"
#include "worker/emulator/broker/guarded_state.h"
#include "worker/emulator/broker/policy_calls.h"
#include "worker/emulator/broker/publishing.h"
#include "worker/emulator/broker/pulling.h"
#include "worker/emulator/broker/schemas.h"
#include "worker/emulator/broker/snapshot_calls.h"
#include "worker/emulator/broker/subscription_calls.h"
#include "worker/emulator/broker/topic_calls.h"

namespace postbox::emulator {

struct SubscriptionStats {
  std::string name;
  int64_t streams = 0;
  SubscriptionCounters counters;
};

class Broker {
 public:
  Broker(const Clock& clock, BrokerOptions options)
      : state_(clock, std::move(options)), schemas_(clock) {}
  Broker(const Broker&) = delete;
  Broker& operator=(const Broker&) = delete;

  // With a data directory: takes it, and what is in it. Once, before anything else.
  absl::Status Recover();

  TopicCalls* topics() { return &topics_; }
  SubscriptionCalls* subscriptions() { return &subscriptions_; }
  SnapshotCalls* snapshots() { return &snapshots_; }
  PolicyCalls* policies() { return &policies_; }
  Publishing* publishing() { return &publishing_; }
  Pulling* pulling() { return &pulling_; }
  Schemas* schemas() { return &schemas_; }

  // Applies the time that has passed to deadlines, backoffs, retention and snapshots.
  void Tick();
  // See guarded_state.h.
  void DeliverAccepted() { state_.DeliverAccepted(); }
  // Wakes every stream, so that it checks the faults and the shutdown again.
  void WakeAll();

  std::vector<SubscriptionStats> Stats();
  int64_t messages_published();

 private:
  GuardedState state_;
  Schemas schemas_;
  TopicCalls topics_{&state_, &schemas_};
  SubscriptionCalls subscriptions_{&state_};
  SnapshotCalls snapshots_{&state_};
  PolicyCalls policies_{&state_};
  Publishing publishing_{&state_, &schemas_};
  Pulling pulling_{&state_};
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_BROKER_BROKER_H_

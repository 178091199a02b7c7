// Reads what a data directory has into the state of a broker, once, before anything else.
#ifndef POSTBOX_WORKER_EMULATOR_BROKER_RECOVERY_H_
#define POSTBOX_WORKER_EMULATOR_BROKER_RECOVERY_H_

#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/emulator/broker/guarded_state.h"
#include "worker/emulator/broker/schemas.h"

namespace postbox::emulator {

class Recovery {
 public:
  // The journal must be open.
  Recovery(BrokerState* state, Schemas* schemas)
      : state_(*state), resources_(state->resources), schemas_(*schemas) {}

  // What was accepted and not delivered is to be delivered afterwards.
  absl::Status Run();

 private:
  absl::Status RecoverSchemas();
  absl::Status RecoverResources();
  absl::Status RecoverMessages();
  // Which messages subscriptions, snapshots and topics have.
  absl::Status RecoverReferences();

  BrokerState& state_;
  Resources& resources_;
  Schemas& schemas_;
  std::map<uint64_t, std::shared_ptr<StoredMessage>> messages_;  // all that are on disk
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_BROKER_RECOVERY_H_

// The topics and subscriptions on the command line of `postbox emulator`.
#ifndef POSTBOX_WORKER_EMULATOR_BROKER_RESOURCE_SPEC_H_
#define POSTBOX_WORKER_EMULATOR_BROKER_RESOURCE_SPEC_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/pubsub/v1/pubsub.pb.h"
#include "worker/emulator/broker/broker.h"

namespace postbox::emulator {

// NAME=TOPIC[,ordered][,exactly-once][,retain-acked][,ack-deadline=S][,retry=MIN_MS:MAX_MS]
//           [,dead-letter=TOPIC:ATTEMPTS][,filter=EXPRESSION]
// Names are ids within `project`, or full resource names.
absl::StatusOr<google::pubsub::v1::Subscription> ParseSubscription(absl::string_view project,
                                                                   absl::string_view spec);

// Creates all of them, and the topics that only a subscription names, as far as they are not in the
// broker already.
absl::Status CreateResources(const std::string& project, const std::vector<std::string>& topics,
                             const std::vector<std::string>& subscriptions, Broker* broker);

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_BROKER_RESOURCE_SPEC_H_

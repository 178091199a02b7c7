// Topics. Errors are those of the service.
#ifndef POSTBOX_WORKER_EMULATOR_BROKER_TOPIC_CALLS_H_
#define POSTBOX_WORKER_EMULATOR_BROKER_TOPIC_CALLS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/pubsub/v1/pubsub.pb.h"
#include "worker/emulator/broker/guarded_state.h"
#include "worker/emulator/broker/schemas.h"

namespace postbox::emulator {

class TopicCalls {
 public:
  TopicCalls(GuardedState* state, Schemas* schemas) : state_(state), schemas_(schemas) {}

  absl::StatusOr<google::pubsub::v1::Topic> Create(const google::pubsub::v1::Topic& topic);
  absl::StatusOr<google::pubsub::v1::Topic> Get(const std::string& name);
  absl::StatusOr<google::pubsub::v1::Topic> Update(
      const google::pubsub::v1::UpdateTopicRequest& request);
  absl::StatusOr<google::pubsub::v1::ListTopicsResponse> List(
      const google::pubsub::v1::ListTopicsRequest& request);
  absl::StatusOr<google::pubsub::v1::ListTopicSubscriptionsResponse> ListSubscriptions(
      const google::pubsub::v1::ListTopicSubscriptionsRequest& request);
  absl::StatusOr<google::pubsub::v1::ListTopicSnapshotsResponse> ListSnapshots(
      const google::pubsub::v1::ListTopicSnapshotsRequest& request);
  // Its subscriptions stay with their messages and get no more.
  absl::Status Delete(const std::string& name);
  // Topics that have the schema refuse what is published to them.
  absl::Status DeleteSchema(const std::string& name);

 private:
  GuardedState* const state_;
  Schemas* const schemas_;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_BROKER_TOPIC_CALLS_H_

// Subscriptions, but for their messages (pulling.h). Errors are those of the service.
#ifndef POSTBOX_WORKER_EMULATOR_BROKER_SUBSCRIPTION_CALLS_H_
#define POSTBOX_WORKER_EMULATOR_BROKER_SUBSCRIPTION_CALLS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/pubsub/v1/pubsub.pb.h"
#include "worker/emulator/broker/guarded_state.h"

namespace postbox::emulator {

class SubscriptionCalls {
 public:
  explicit SubscriptionCalls(GuardedState* state) : state_(state) {}

  absl::StatusOr<google::pubsub::v1::Subscription> Create(
      const google::pubsub::v1::Subscription& subscription);
  absl::StatusOr<google::pubsub::v1::Subscription> Get(const std::string& name);
  absl::StatusOr<google::pubsub::v1::Subscription> Update(
      const google::pubsub::v1::UpdateSubscriptionRequest& request);
  absl::StatusOr<google::pubsub::v1::ListSubscriptionsResponse> List(
      const google::pubsub::v1::ListSubscriptionsRequest& request);
  absl::Status Delete(const std::string& name);
  // Drops its messages. It gets no more, and can only be deleted.
  absl::Status Detach(const std::string& name);
  absl::Status ModifyPushConfig(const google::pubsub::v1::ModifyPushConfigRequest& request);

 private:
  GuardedState* const state_;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_BROKER_SUBSCRIPTION_CALLS_H_

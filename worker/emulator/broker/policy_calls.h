// The IAM policies of topics, subscriptions and snapshots. They are kept and returned, and asked
// when they are enforced (worker/emulator/auth/access_control.h).
#ifndef POSTBOX_WORKER_EMULATOR_BROKER_POLICY_CALLS_H_
#define POSTBOX_WORKER_EMULATOR_BROKER_POLICY_CALLS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/iam/v1/iam_policy.pb.h"
#include "worker/emulator/broker/guarded_state.h"

namespace postbox::emulator {

class PolicyCalls {
 public:
  explicit PolicyCalls(GuardedState* state) : state_(state) {}

  absl::StatusOr<google::iam::v1::Policy> Get(const google::iam::v1::GetIamPolicyRequest& request);
  // ABORTED if the request has the etag of an older policy.
  absl::StatusOr<google::iam::v1::Policy> Set(const google::iam::v1::SetIamPolicyRequest& request);
  absl::StatusOr<google::iam::v1::TestIamPermissionsResponse> Test(
      const google::iam::v1::TestIamPermissionsRequest& request);
  // Whether the policy of a resource gives this caller a permission; no if there is no such one.
  bool Allows(const std::string& resource, const std::string& caller,
              const std::string& permission);

 private:
  GuardedState* const state_;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_BROKER_POLICY_CALLS_H_

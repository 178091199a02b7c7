// google.iam.v1.IAMPolicy over a Broker.
#ifndef POSTBOX_WORKER_EMULATOR_IAM_SERVICE_H_
#define POSTBOX_WORKER_EMULATOR_IAM_SERVICE_H_

#include "google/iam/v1/iam_policy.grpc.pb.h"
#include "worker/emulator/broker/broker.h"
#include "worker/emulator/call_gate.h"

namespace postbox::emulator {

class IamService final : public google::iam::v1::IAMPolicy::Service {
 public:
  IamService(Broker* broker, CallGate* gate) : broker_(broker), gate_(gate) {}

  grpc::Status SetIamPolicy(grpc::ServerContext* context,
                            const google::iam::v1::SetIamPolicyRequest* request,
                            google::iam::v1::Policy* response) override;
  grpc::Status GetIamPolicy(grpc::ServerContext* context,
                            const google::iam::v1::GetIamPolicyRequest* request,
                            google::iam::v1::Policy* response) override;
  grpc::Status TestIamPermissions(grpc::ServerContext* context,
                                  const google::iam::v1::TestIamPermissionsRequest* request,
                                  google::iam::v1::TestIamPermissionsResponse* response) override;

 private:
  Broker* const broker_;
  CallGate* const gate_;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_IAM_SERVICE_H_

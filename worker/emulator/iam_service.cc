#include "worker/emulator/iam_service.h"

#include "worker/emulator/respond.h"

namespace postbox::emulator {

namespace iam = google::iam::v1;

grpc::Status IamService::SetIamPolicy(grpc::ServerContext* context,
                                      const iam::SetIamPolicyRequest* request,
                                      iam::Policy* response) {
  return gate_->Run(context, "SetIamPolicy", *request,
                    [&] { return Respond(broker_->policies()->Set(*request), response); });
}

grpc::Status IamService::GetIamPolicy(grpc::ServerContext* context,
                                      const iam::GetIamPolicyRequest* request,
                                      iam::Policy* response) {
  return gate_->Run(context, "GetIamPolicy", *request,
                    [&] { return Respond(broker_->policies()->Get(*request), response); });
}

grpc::Status IamService::TestIamPermissions(grpc::ServerContext* context,
                                            const iam::TestIamPermissionsRequest* request,
                                            iam::TestIamPermissionsResponse* response) {
  return gate_->Run(context, "TestIamPermissions", *request, [&] {
    auto status = Respond(broker_->policies()->Test(*request), response);
    if (status.ok() && gate_->access() != nullptr) {
      gate_->access()->KeepHeld(*context, request->resource(), response);
    }
    return status;
  });
}

}  // namespace postbox::emulator

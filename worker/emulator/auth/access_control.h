// Enforces the IAM policies of the resources (access.h). Without it every client may do everything.
#ifndef POSTBOX_WORKER_EMULATOR_AUTH_ACCESS_CONTROL_H_
#define POSTBOX_WORKER_EMULATOR_AUTH_ACCESS_CONTROL_H_

#include <google/protobuf/message.h>
#include <grpcpp/server_context.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "google/iam/v1/iam_policy.pb.h"
#include "worker/emulator/auth/bearer.h"

namespace postbox::emulator {

class AccessControl {
 public:
  // Whether the policy of a resource gives this caller a permission.
  using Grants = std::function<bool(const std::string& resource, const std::string& caller,
                                    const std::string& permission)>;

  // `administrators` may do everything.
  AccessControl(Grants grants, std::shared_ptr<const BearerVerifier> verifier,
                std::set<std::string> administrators)
      : grants_(std::move(grants)),
        verifier_(std::move(verifier)),
        administrators_(std::move(administrators)) {}

  // PERMISSION_DENIED if the caller may not make this call.
  absl::Status Check(const grpc::ServerContextBase& context, const char* rpc,
                     const google::protobuf::Message& request) const;

  // Leaves those permissions that the caller has on the resource.
  void KeepHeld(const grpc::ServerContextBase& context, const std::string& resource,
                google::iam::v1::TestIamPermissionsResponse* response) const;

 private:
  // The token was checked when the call began. This says once more whose it is.
  std::string Caller(const grpc::ServerContextBase& context) const;
  bool Allows(const std::string& caller, const std::string& resource,
              const std::string& permission) const;

  const Grants grants_;
  const std::shared_ptr<const BearerVerifier> verifier_;
  const std::set<std::string> administrators_;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_AUTH_ACCESS_CONTROL_H_

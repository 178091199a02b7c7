#include "worker/emulator/auth/access_control.h"

#include "worker/emulator/auth/access.h"

namespace postbox::emulator {

absl::Status AccessControl::Check(const grpc::ServerContextBase& context, const char* rpc,
                                  const google::protobuf::Message& request) const {
  const Need need = NeedOf(rpc, request);
  if (need.permission.empty() || Allows(Caller(context), need.resource, need.permission)) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError("User not authorized to perform this action.");
}

void AccessControl::KeepHeld(const grpc::ServerContextBase& context, const std::string& resource,
                             google::iam::v1::TestIamPermissionsResponse* response) const {
  const std::string caller = Caller(context);
  google::iam::v1::TestIamPermissionsResponse held;
  for (const std::string& permission : response->permissions()) {
    if (Allows(caller, resource, permission)) held.add_permissions(permission);
  }
  response->Swap(&held);
}

std::string AccessControl::Caller(const grpc::ServerContextBase& context) const {
  const auto& metadata = context.client_metadata();
  const auto header = metadata.find("authorization");
  if (header == metadata.end()) return "";
  const auto caller = verifier_->Verify({header->second.data(), header->second.size()});
  return caller.ok() ? *caller : "";
}

bool AccessControl::Allows(const std::string& caller, const std::string& resource,
                           const std::string& permission) const {
  if (caller.empty()) return false;
  return administrators_.contains(caller) || grants_(resource, caller, permission);
}

}  // namespace postbox::emulator

#include "worker/emulator/broker/policy_calls.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "worker/emulator/auth/access.h"
#include "worker/emulator/rules/invalid.h"
#include "worker/emulator/rules/service_limits.h"
#include "worker/emulator/rules/unsupported.h"
#include "worker/emulator/rules/validation.h"

namespace postbox::emulator {

namespace iam = google::iam::v1;

namespace {

absl::Status CheckVersion(int version) {
  if (version == 0 || version == 1 || version == 3) return absl::OkStatus();
  return Invalid("a policy has version 0, 1 or 3, not ", version);
}

bool IsMember(absl::string_view member) {
  if (member == "allUsers" || member == "allAuthenticatedUsers") return true;
  for (const absl::string_view prefix :
       {"user:", "serviceAccount:", "group:", "domain:", "principal:", "principalSet:",
        "projectOwner:", "projectEditor:", "projectViewer:", "deleted:"}) {
    if (absl::StartsWith(member, prefix)) return member.size() > prefix.size();
  }
  return false;
}

absl::Status CheckPolicy(const iam::Policy& policy) {
  if (auto s = CheckKnown(policy); !s.ok()) return s;
  if (!policy.audit_configs().empty()) return Unsupported("audit_configs");
  if (auto s = CheckVersion(policy.version()); !s.ok()) return s;
  int members = 0;
  for (const iam::Binding& binding : policy.bindings()) {
    if (!absl::StartsWith(binding.role(), "roles/") &&
        !absl::StartsWith(binding.role(), "projects/") &&
        !absl::StartsWith(binding.role(), "organizations/")) {
      return Invalid("role \"", binding.role(),
                     "\" must begin with roles/, as in roles/pubsub.viewer");
    }
    if (binding.has_condition() && policy.version() != 3) {
      return Invalid("a policy with conditions must have version 3, not ", policy.version());
    }
    for (const std::string& member : binding.members()) {
      if (!IsMember(member)) {
        return Invalid("member \"", member,
                       "\" must be allUsers, allAuthenticatedUsers or begin with its type, as in "
                       "user:name@example.com");
      }
    }
    members += binding.members_size();
  }
  if (members <= kMaxPolicyMembers) return absl::OkStatus();
  return Invalid("a policy has ", members, " members, at most ", kMaxPolicyMembers);
}

// Of a policy that was never set, too.
std::string EtagOf(const iam::Policy& policy) {
  return policy.etag().empty() ? "unset" : policy.etag();
}

absl::Status CheckResource(const std::string& name) {
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '/');
  for (const absl::string_view collection : {"topics", "subscriptions", "snapshots"}) {
    if (parts.size() == 4 && parts[2] == collection) return CheckName(name, collection);
  }
  return Invalid("invalid resource name \"", name,
                 "\": it must be that of a topic, a subscription or a snapshot");
}

}  // namespace

absl::StatusOr<iam::Policy> PolicyCalls::Get(const iam::GetIamPolicyRequest& request) {
  if (auto s = CheckResource(request.resource()); !s.ok()) return s;
  if (auto s = CheckVersion(request.options().requested_policy_version()); !s.ok()) return s;
  const BrokerAccess access(state_);
  const iam::Policy* policy = access->resources.FindPolicy(request.resource());
  if (policy == nullptr) return NotFound(request.resource());
  iam::Policy answer = *policy;
  answer.set_etag(EtagOf(*policy));
  return answer;
}

absl::StatusOr<iam::Policy> PolicyCalls::Set(const iam::SetIamPolicyRequest& request) {
  if (auto s = CheckResource(request.resource()); !s.ok()) return s;
  if (auto s = CheckPolicy(request.policy()); !s.ok()) return s;
  const auto& paths = request.update_mask().paths();
  for (const std::string& path : paths) {
    if (path == "audit_configs") return Unsupported(path);
    if (path != "bindings" && path != "etag" && path != "version") {
      return Invalid("update_mask names a field that a policy does not have: ", path);
    }
  }
  const BrokerChange change(state_);
  iam::Policy* policy = change->resources.FindPolicy(request.resource());
  if (policy == nullptr) return NotFound(request.resource());
  if (!request.policy().etag().empty() && request.policy().etag() != EtagOf(*policy)) {
    return absl::AbortedError(
        "the policy was changed since it was read (its etag differs): read it and change it again");
  }
  if (paths.empty() || std::find(paths.begin(), paths.end(), "bindings") != paths.end()) {
    *policy->mutable_bindings() = request.policy().bindings();
    policy->set_version(request.policy().version());
  }
  policy->set_etag(change->ids.NextEtag());
  change->resources.Save(request.resource());
  return *policy;
}

absl::StatusOr<iam::TestIamPermissionsResponse> PolicyCalls::Test(
    const iam::TestIamPermissionsRequest& request) {
  if (auto s = CheckResource(request.resource()); !s.ok()) return s;
  iam::TestIamPermissionsResponse response;
  const BrokerAccess access(state_);
  const bool exists = access->resources.FindPolicy(request.resource()) != nullptr;
  for (const std::string& permission : request.permissions()) {
    if (permission.find('*') != std::string::npos || !absl::StartsWith(permission, "pubsub.")) {
      return Invalid("permission \"", permission,
                     "\" must be one of Pub/Sub without wildcards, as in pubsub.topics.publish");
    }
    // Of what does not exist there is no permission. The caller is not known here.
    if (exists) response.add_permissions(permission);
  }
  return response;
}

bool PolicyCalls::Allows(const std::string& resource, const std::string& caller,
                         const std::string& permission) {
  const BrokerAccess access(state_);
  const iam::Policy* policy = access->resources.FindPolicy(resource);
  return policy != nullptr && PolicyAllows(*policy, caller, permission);
}

}  // namespace postbox::emulator

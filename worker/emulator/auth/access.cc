#include "worker/emulator/auth/access.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace postbox::emulator {
namespace {

// The field that names the resource may be one of a message in the request.
struct Rule {
  absl::string_view rpc;
  absl::string_view permission;
  absl::string_view field;
};
constexpr Rule kRules[] = {
    {"Publish", "pubsub.topics.publish", "topic"},
    {"GetTopic", "pubsub.topics.get", "topic"},
    {"UpdateTopic", "pubsub.topics.update", "topic.name"},
    {"DeleteTopic", "pubsub.topics.delete", "topic"},
    {"ListTopicSubscriptions", "pubsub.topics.get", "topic"},
    {"ListTopicSnapshots", "pubsub.topics.get", "topic"},
    {"GetSubscription", "pubsub.subscriptions.get", "subscription"},
    {"UpdateSubscription", "pubsub.subscriptions.update", "subscription.name"},
    {"ModifyPushConfig", "pubsub.subscriptions.update", "subscription"},
    {"DeleteSubscription", "pubsub.subscriptions.delete", "subscription"},
    {"Pull", "pubsub.subscriptions.consume", "subscription"},
    {"StreamingPull", "pubsub.subscriptions.consume", "subscription"},
    {"Acknowledge", "pubsub.subscriptions.consume", "subscription"},
    {"ModifyAckDeadline", "pubsub.subscriptions.consume", "subscription"},
    {"Seek", "pubsub.subscriptions.consume", "subscription"},
    {"GetSnapshot", "pubsub.snapshots.get", "snapshot"},
    {"UpdateSnapshot", "pubsub.snapshots.update", "snapshot.name"},
    {"DeleteSnapshot", "pubsub.snapshots.delete", "snapshot"},
    {"GetIamPolicy", "getIamPolicy", "resource"},
    {"SetIamPolicy", "setIamPolicy", "resource"},
};
// Who asks for its own permissions.
constexpr absl::string_view kOpen = "TestIamPermissions";

std::string FieldOf(const google::protobuf::Message& message, absl::string_view path) {
  const google::protobuf::Message* at = &message;
  const std::vector<std::string> names = absl::StrSplit(path, '.');
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto* field = at->GetDescriptor()->FindFieldByName(names[i]);
    if (field == nullptr) return "";
    if (i + 1 == names.size()) return at->GetReflection()->GetString(*at, field);
    at = &at->GetReflection()->GetMessage(*at, field);
  }
  return "";
}

// "topics" of projects/P/topics/T
std::string CollectionOf(const std::string& resource) {
  const std::vector<std::string> parts = absl::StrSplit(resource, '/');
  return parts.size() == 4 ? parts[2] : "";
}

bool EndsWithOneOf(absl::string_view permission, std::initializer_list<absl::string_view> verbs) {
  return std::any_of(verbs.begin(), verbs.end(), [permission](absl::string_view verb) {
    return absl::EndsWith(permission, verb);
  });
}

bool RoleHas(absl::string_view role, absl::string_view permission) {
  const bool reads = EndsWithOneOf(permission, {".get", ".list"});
  const bool policies = EndsWithOneOf(permission, {"IamPolicy"});
  if (role == "roles/pubsub.admin" || role == "roles/owner") return true;
  if (role == "roles/pubsub.editor" || role == "roles/editor") return !policies;
  if (role == "roles/pubsub.viewer" || role == "roles/viewer") return reads;
  if (role == "roles/pubsub.publisher") return permission == "pubsub.topics.publish";
  if (role == "roles/pubsub.subscriber") {
    return permission == "pubsub.subscriptions.consume" || permission == "pubsub.snapshots.seek" ||
           permission == "pubsub.topics.attachSubscription";
  }
  return false;
}

bool IsOneOf(absl::string_view member, absl::string_view caller) {
  if (member == "allUsers" || member == "allAuthenticatedUsers" || member == caller) return true;
  return (absl::ConsumePrefix(&member, "user:") ||
          absl::ConsumePrefix(&member, "serviceAccount:")) &&
         member == caller;
}

}  // namespace

Need NeedOf(absl::string_view rpc, const google::protobuf::Message& request) {
  if (rpc == kOpen) return {};
  const auto rule = std::find_if(std::begin(kRules), std::end(kRules),
                                 [rpc](const Rule& of) { return of.rpc == rpc; });
  if (rule == std::end(kRules)) return {"pubsub.admin", ""};
  Need need{std::string(rule->permission), FieldOf(request, rule->field)};
  // One call for all kinds of resources.
  if (rule->field == "resource") {
    need.permission = "pubsub." + CollectionOf(need.resource) + "." + need.permission;
  }
  return need;
}

bool PolicyAllows(const google::iam::v1::Policy& policy, absl::string_view caller,
                  absl::string_view permission) {
  const auto& bindings = policy.bindings();
  return std::any_of(bindings.begin(), bindings.end(), [&](const auto& binding) {
    const auto& members = binding.members();
    return !binding.has_condition() && RoleHas(binding.role(), permission) &&
           std::any_of(members.begin(), members.end(),
                       [&](const std::string& member) { return IsOneOf(member, caller); });
  });
}

}  // namespace postbox::emulator

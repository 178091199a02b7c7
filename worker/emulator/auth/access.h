// Who may do what, when the emulator enforces its IAM policies.
//
// A call needs one permission on one resource. A caller has it if a binding of the policy of the
// resource names it and has a role with the permission, or if it is an administrator: as with an
// owner of a project, to whom a policy need not say so. What is not done on a topic, a subscription
// or a snapshot that exists, such as creating one or listing all, is for administrators only: the
// emulator has no policies of projects. Conditions of bindings are not evaluated, so a binding with
// one gives nothing.
#ifndef POSTBOX_WORKER_EMULATOR_AUTH_ACCESS_H_
#define POSTBOX_WORKER_EMULATOR_AUTH_ACCESS_H_

#include <google/protobuf/message.h>

#include <string>

#include "absl/strings/string_view.h"
#include "google/iam/v1/iam_policy.pb.h"

namespace postbox::emulator {

struct Need {
  std::string permission;  // empty: every caller may
  std::string resource;    // empty: for administrators
};

// What the call of this name needs.
Need NeedOf(absl::string_view rpc, const google::protobuf::Message& request);

// Whether the policy gives the permission to this caller, an e-mail address or principal:...
bool PolicyAllows(const google::iam::v1::Policy& policy, absl::string_view caller,
                  absl::string_view permission);

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_AUTH_ACCESS_H_

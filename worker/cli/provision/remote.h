// The calls of Pub/Sub that `postbox provision` makes: it reads what a file names, and carries out
// one step of a plan.
#ifndef POSTBOX_WORKER_CLI_PROVISION_REMOTE_H_
#define POSTBOX_WORKER_CLI_PROVISION_REMOTE_H_

#include <string>
#include <vector>

#include "worker/cli/base/pubsub_admin.h"
#include "worker/cli/provision/plan.h"

namespace postbox::cli {

// A call that has failed, and for what.
struct CallResult {
  grpc::Status status;
  std::string subject;
  bool ok() const { return status.ok(); }
};

// Fields that the server did not take, with the reason.
using LeftOut = std::vector<Objection>;

class Remote {
 public:
  explicit Remote(PubSubAdmin* admin) : admin_(admin) {}

  // What the server has of all that the file names and refers to.
  CallResult Read(const Desired& desired, Actual* actual);
  // Asks the server about the definitions of the plan's schemas, before anything is changed. A
  // server without this call has no objection.
  CallResult Validate(const Desired& desired, const Plan& plan);
  // With `skip_unsupported`, a field that is answered with UNIMPLEMENTED and its name is left out
  // and the step is tried without it. What the server takes without an error and does not show in
  // its answer is left out, too.
  CallResult Apply(const Step& step, bool skip_unsupported, LeftOut* left_out);

 private:
  grpc::Status GetSchema(const std::string& name, pb::Schema* schema);
  grpc::Status GetPolicy(const std::string& resource, iam::Policy* policy);
  CallResult ReadPolicies(const Desired& desired, Actual* actual);

  grpc::Status ApplySchema(const Step& step, const pb::Schema& schema);
  grpc::Status ApplyGrants(const Grants& grants);
  grpc::Status Send(const Step& step, const pb::Topic& topic, const std::vector<std::string>& mask,
                    pb::Topic* answer);
  grpc::Status Send(const Step& step, const pb::Subscription& subscription,
                    const std::vector<std::string>& mask, pb::Subscription* answer);
  template <class Resource>
  grpc::Status ApplyResource(const Step& step, Resource wanted, bool skip_unsupported,
                             LeftOut* left_out);

  PubSubAdmin* const admin_;
};

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_PROVISION_REMOTE_H_

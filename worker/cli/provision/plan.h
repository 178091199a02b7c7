// The differences between what a file asks for and what a server has, as steps in the order of
// their dependencies, and what cannot be done. A pure function: nothing here calls Pub/Sub.
//
// The order is schemas, topics, rights on topics, subscriptions, rights on subscriptions. A
// subscription finds its topics there, a topic its schema, and the service may publish to a
// dead-letter topic before a subscription names it. Every step leads to the same state whatever
// came before it, and looks for itself whether it is needed: so a run that was interrupted is
// completed by the next one.
//
// Nothing is ever deleted, and no right is taken away.
#ifndef POSTBOX_WORKER_CLI_PROVISION_PLAN_H_
#define POSTBOX_WORKER_CLI_PROVISION_PLAN_H_

#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "google/iam/v1/policy.pb.h"
#include "worker/cli/provision/desired.h"

namespace postbox::cli {

namespace iam = google::iam::v1;

// What the server has of what the file names. What is missing there is missing here.
struct Actual {
  std::map<std::string, pb::Schema> schemas;  // the newest revisions
  std::map<std::string, pb::Topic> topics;
  std::map<std::string, pb::Subscription> subscriptions;
  std::map<std::string, iam::Policy> policies;
  // The server does not implement these at all.
  bool no_schemas = false;
  bool no_policies = false;
};

struct Change {
  std::string key;   // of a file
  std::string from;  // empty if the resource is new
  std::string to;
};

// Roles that members are to get on one resource.
struct Grants {
  std::string resource;
  std::vector<Grant> grants;
};

struct Step {
  enum Kind { kCreate, kUpdate };
  Kind kind;
  std::string what;  // "schema", "topic", "subscription", "rights on"
  std::string name;
  std::vector<Change> changes;
  std::variant<pb::Schema, pb::Topic, pb::Subscription, Grants> wanted;
  std::vector<std::string> mask;  // of an update: the paths of the fields that change
};

// A line for people: "+ topic projects/...", and one for each change.
std::string StepText(const Step& step);

struct Objection {
  std::string name;
  std::string reason;
  std::string remedy;
};

struct Plan {
  std::vector<Step> steps;
  // If there is one, nothing is to be done.
  std::vector<Objection> refusals;
  // What the server does not implement: left out if the user agrees, else a refusal.
  std::vector<Objection> unsupported;
};

Plan MakePlan(const Desired& desired, const Actual& actual);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_PROVISION_PLAN_H_

// What a file for `postbox provision` asks for: resources of Pub/Sub and rights on them, with the
// defaults filled in and the resources that a dead-letter policy implies. docs/guides/provision.md
// has the format.
#ifndef POSTBOX_WORKER_CLI_PROVISION_DESIRED_H_
#define POSTBOX_WORKER_CLI_PROVISION_DESIRED_H_

#include <optional>
#include <string>
#include <vector>

#include "google/pubsub/v1/pubsub.pb.h"
#include "google/pubsub/v1/schema.pb.h"
#include "worker/cli/provision/document.h"
#include "worker/cli/provision/section.h"

namespace postbox::cli {

namespace pb = google::pubsub::v1;

inline constexpr char kPublisherRole[] = "roles/pubsub.publisher";
inline constexpr char kSubscriberRole[] = "roles/pubsub.subscriber";

// One member has one role on one topic or subscription, which is a full name.
struct Grant {
  std::string resource;
  std::string role;
  std::string member;
  friend bool operator==(const Grant&, const Grant&) = default;
};

// `fields`: the fields of the resource that the file decides about. The others stay as they are on
// the server.
template <class Resource>
struct Wanted {
  Resource resource;
  std::vector<std::string> fields;
};

struct Desired {
  std::string project;
  std::vector<pb::Schema> schemas;
  std::vector<Wanted<pb::Topic>> topics;
  std::vector<Wanted<pb::Subscription>> subscriptions;
  std::vector<Grant> grants;
  std::vector<std::string> warnings;
};

// The project of the document, or "".
std::string ProjectOf(const Json& document);

// `project` completes short names. `directory` is where the files of definitions are looked for.
// What is wrong is added to `problems`, and then the result is not to be used.
Desired ReadDesired(const Json& document, const std::string& project, const std::string& directory,
                    Problems* problems);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_PROVISION_DESIRED_H_

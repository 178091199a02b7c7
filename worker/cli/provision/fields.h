// The fields of topics and subscriptions that `postbox provision` decides about, in one table: what
// they are called in a file, how they are shown, and whether Pub/Sub can change them. Two resources
// agree in a field if it is shown in the same way.
#ifndef POSTBOX_WORKER_CLI_PROVISION_FIELDS_H_
#define POSTBOX_WORKER_CLI_PROVISION_FIELDS_H_

#include <span>
#include <string>

#include "google/pubsub/v1/pubsub.pb.h"
#include "google/pubsub/v1/schema.pb.h"

namespace postbox::cli {

namespace pb = google::pubsub::v1;

template <class Resource>
struct ResourceField {
  const char* path;  // in the resource, as an update_mask has it
  const char* key;   // in a file
  std::string (*show)(const Resource&);
  bool changeable = true;
};

std::span<const ResourceField<pb::Topic>> TopicFields();
std::span<const ResourceField<pb::Subscription>> SubscriptionFields();

inline std::span<const ResourceField<pb::Topic>> FieldsOf(const pb::Topic&) {
  return TopicFields();
}
inline std::span<const ResourceField<pb::Subscription>> FieldsOf(const pb::Subscription&) {
  return SubscriptionFields();
}

// A text of a user in one line, as a string of JSON, which is one of YAML, too. Bytes that are not
// UTF-8 are replaced.
std::string Quoted(const std::string& text);

// Whether the two definitions mean the same: JSON is compared as JSON.
bool SameDefinition(const pb::Schema& left, const pb::Schema& right);
const char* TypeName(pb::Schema::Type type);  // as a file has it

// The last part of a name, and the project.
std::string IdOf(const std::string& name);
std::string ProjectOfName(const std::string& name);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_PROVISION_FIELDS_H_

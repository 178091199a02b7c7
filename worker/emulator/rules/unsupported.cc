#include "worker/emulator/rules/unsupported.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "google/protobuf/unknown_field_set.h"

namespace postbox::emulator {
namespace {

namespace pb = google::pubsub::v1;

// Fields of the service that proto/ does not declare.
struct Field {
  absl::string_view type;
  int number;
  absl::string_view name;
};
constexpr Field kUndeclared[] = {
    {"Topic", 10, "ingestion_data_source_settings"},
    {"Topic", 13, "message_transforms"},
    {"Topic", 14, "tags"},
    {"Subscription", 18, "bigquery_config"},
    {"Subscription", 22, "cloud_storage_config"},
    {"Subscription", 23, "analytics_hub_subscription_info"},
    {"Subscription", 25, "message_transforms"},
    {"Subscription", 26, "tags"},
    {"Subscription", 27, "bigtable_config"},
    {"CreateSnapshotRequest", 4, "tags"},
};

std::string NameOf(const google::protobuf::Descriptor& type, int number) {
  for (const Field& field : kUndeclared) {
    if (field.number == number && type.name() == field.type) return std::string(field.name);
  }
  return absl::StrCat("field ", number, " of ", std::string(type.name()));
}

}  // namespace

absl::Status Unsupported(absl::string_view field) {
  return absl::UnimplementedError(absl::StrCat(field, " is not implemented by this emulator"));
}

absl::Status CheckKnown(const google::protobuf::Message& message) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  const google::protobuf::UnknownFieldSet& unknown = reflection.GetUnknownFields(message);
  if (unknown.field_count() > 0) {
    return Unsupported(NameOf(*message.GetDescriptor(), unknown.field(0).number()));
  }
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const google::protobuf::FieldDescriptor* field : fields) {
    if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (field->is_map()) continue;  // of texts
    if (field->is_repeated()) {
      for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
        if (auto s = CheckKnown(reflection.GetRepeatedMessage(message, field, i)); !s.ok()) {
          return s;
        }
      }
    } else if (auto s = CheckKnown(reflection.GetMessage(message, field)); !s.ok()) {
      return s;
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSupported(const pb::Topic& topic) {
  if (auto s = CheckKnown(topic); !s.ok()) return s;
  if (!topic.kms_key_name().empty()) return Unsupported("kms_key_name");
  return absl::OkStatus();
}

absl::Status CheckSupported(const pb::Subscription& subscription) {
  if (auto s = CheckKnown(subscription); !s.ok()) return s;
  // Without any field it means pull, as none does.
  if (subscription.push_config().ByteSizeLong() > 0) return Unsupported("push_config");
  return absl::OkStatus();
}

absl::Status CannotUpdate(const google::protobuf::Descriptor& type, absl::string_view path) {
  const std::string field(path.substr(0, path.find('.')));
  for (const Field& undeclared : kUndeclared) {
    if (undeclared.name == field && type.name() == undeclared.type) return Unsupported(field);
  }
  if (field == "kms_key_name") return Unsupported(field);
  return absl::InvalidArgumentError(
      absl::StrCat("update_mask names a field that cannot be updated: ", path));
}

}  // namespace postbox::emulator

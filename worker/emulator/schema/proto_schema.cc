#include "worker/emulator/schema/proto_schema.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/compiler/parser.h"
#include "google/protobuf/descriptor.pb.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/util/json_util.h"
#include "worker/emulator/rules/invalid.h"
#include "worker/emulator/schema/avro_schema.h"

namespace postbox::emulator {

namespace gp = google::protobuf;

namespace {

class ParseErrors final : public gp::io::ErrorCollector, public gp::DescriptorPool::ErrorCollector {
 public:
  void AddError(int line, gp::io::ColumnNumber column, const std::string& message) override {
    if (first_.empty()) first_ = absl::StrCat("line ", line + 1, ":", column + 1, ": ", message);
  }
  void AddError(const std::string& /*file*/, const std::string& element,
                const gp::Message* /*descriptor*/, ErrorLocation /*location*/,
                const std::string& message) override {
    if (first_.empty()) first_ = absl::StrCat(element, ": ", message);
  }
  const std::string& first() const { return first_; }

 private:
  std::string first_;
};

// The parser of protobuf calls itself for each level. What is in strings and comments counts, too.
bool NestsTooDeeply(absl::string_view text) {
  int depth = 0;
  for (const char c : text) {
    if (c == '{' || c == '<' || c == '[') {
      if (++depth > kMaxSchemaDepth) return true;
    } else if (c == '}' || c == '>' || c == ']') {
      depth = std::max(0, depth - 1);
    }
  }
  return false;
}

absl::Status CheckFile(const gp::FileDescriptorProto& file) {
  if (file.dependency_size() > 0) {
    return Invalid("it imports ", file.dependency(0), "; a schema imports nothing");
  }
  if (file.message_type_size() != 1 || file.enum_type_size() > 0) {
    return Invalid("it must define one top-level type, a message, not ", file.message_type_size(),
                   " messages and ", file.enum_type_size(), " enums");
  }
  if (file.service_size() > 0 || file.extension_size() > 0) {
    return Invalid("it must define a message only, no service and no extension");
  }
  // protobuf reads and writes its own types in JSON in special ways, and trusts their fields.
  const std::string& name = file.message_type(0).name();
  const std::string full = file.package().empty() ? name : absl::StrCat(file.package(), ".", name);
  if (full == "google" || absl::StartsWith(absl::StrCat(full, "."), "google.protobuf.")) {
    return Invalid(full, " takes a name of protobuf itself");
  }
  return absl::OkStatus();
}

// What two revisions must have in common of a field that both have.
std::string EssenceOf(const gp::FieldDescriptor& field) {
  gp::FieldDescriptorProto proto;
  field.CopyTo(&proto);
  proto.clear_oneof_index();  // of an optional field it counts those before it
  proto.clear_json_name();
  const gp::OneofDescriptor* oneof = field.real_containing_oneof();
  return absl::StrCat(proto.SerializeAsString(), "\n", oneof == nullptr ? "" : oneof->name());
}

bool MayComeAndGo(const gp::FieldDescriptor& field) {
  return field.is_optional();  // neither required nor repeated
}

absl::Status CheckFields(const gp::Descriptor& type, const gp::Descriptor& other) {
  for (int i = 0; i < type.field_count(); ++i) {
    const gp::FieldDescriptor& field = *type.field(i);
    const gp::FieldDescriptor* old = other.FindFieldByNumber(field.number());
    if (old == nullptr) {
      if (MayComeAndGo(field)) continue;
      return Invalid("field ", field.full_name(),
                     " is not optional: it can be neither added nor removed");
    }
    if (EssenceOf(field) != EssenceOf(*old)) {
      return Invalid("field ", field.full_name(), " (number ", field.number(), ") was changed");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckEnums(const gp::Descriptor& type, const gp::Descriptor& other) {
  for (int i = 0; i < type.enum_type_count(); ++i) {
    const gp::EnumDescriptor* old = other.FindEnumTypeByName(type.enum_type(i)->name());
    if (old == nullptr) continue;
    for (int k = 0; k < old->value_count(); ++k) {
      const gp::EnumValueDescriptor* value =
          type.enum_type(i)->FindValueByName(old->value(k)->name());
      if (value != nullptr && value->number() == old->value(k)->number()) continue;
      return Invalid("value ", old->value(k)->full_name(), " of an enum was changed");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTypes(const gp::Descriptor& type, const gp::Descriptor& older) {
  if (type.full_name() != older.full_name()) {
    return Invalid("message ", older.full_name(), " has become ", type.full_name());
  }
  if (auto s = CheckFields(type, older); !s.ok()) return s;
  if (auto s = CheckFields(older, type); !s.ok()) return s;
  if (auto s = CheckEnums(type, older); !s.ok()) return s;
  for (int i = 0; i < type.nested_type_count(); ++i) {
    const gp::Descriptor* old = older.FindNestedTypeByName(type.nested_type(i)->name());
    if (old == nullptr) continue;
    if (auto s = CheckTypes(*type.nested_type(i), *old); !s.ok()) return s;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProtoSchema>> ProtoSchema::Parse(absl::string_view definition) {
  if (NestsTooDeeply(definition)) return Invalid("types are nested too deeply");
  ParseErrors problems;
  gp::io::ArrayInputStream input(definition.data(), static_cast<int>(definition.size()));
  gp::io::Tokenizer tokenizer(&input, &problems);
  gp::compiler::Parser parser;
  parser.RecordErrorsTo(&problems);
  gp::FileDescriptorProto file;
  if (!parser.Parse(&tokenizer, &file) || !problems.first().empty()) {
    return Invalid(problems.first());
  }
  if (auto s = CheckFile(file); !s.ok()) return s;
  file.set_name("schema.proto");
  std::unique_ptr<ProtoSchema> schema(new ProtoSchema);
  const gp::FileDescriptor* built = schema->pool_.BuildFileCollectingErrors(file, &problems);
  if (built == nullptr) return Invalid(problems.first());
  schema->type_ = built->message_type(0);
  return schema;
}

std::unique_ptr<gp::Message> ProtoSchema::NewMessage() const {
  return std::unique_ptr<gp::Message>(factory_.GetPrototype(type_)->New());
}

absl::Status ProtoSchema::CheckBinary(absl::string_view data) const {
  const auto message = NewMessage();
  if (!message->ParsePartialFromArray(data.data(), static_cast<int>(data.size()))) {
    return Invalid("it is not a message of ", type_->full_name());
  }
  std::vector<std::string> missing;
  message->FindInitializationErrors(&missing);
  if (missing.empty()) return absl::OkStatus();
  return Invalid("required fields are missing: ", absl::StrJoin(missing, ", "));
}

absl::Status ProtoSchema::CheckJson(absl::string_view data) const {
  const auto message = NewMessage();
  const auto status = gp::util::JsonStringToMessage(std::string(data), message.get());
  if (!status.ok()) {
    return Invalid("it is not a message of ", type_->full_name(), ": ",
                   std::string(status.message()));
  }
  return absl::OkStatus();
}

absl::Status ProtoSchema::CheckRevises(const ProtoSchema& older) const {
  return CheckTypes(*type_, *older.type_);
}

}  // namespace postbox::emulator

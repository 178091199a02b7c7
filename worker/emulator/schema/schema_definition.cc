#include "worker/emulator/schema/schema_definition.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "worker/emulator/schema/avro_binary.h"
#include "worker/emulator/schema/avro_json.h"
#include "worker/emulator/schema/avro_resolution.h"

namespace postbox::emulator {

namespace pb = google::pubsub::v1;

namespace {

// Google documents 300 KB.
constexpr size_t kMaxDefinitionBytes = 300 * 1024;

// The reasons hold names and data of the user. A status must fit into the headers of an answer.
absl::Status Because(absl::string_view what, const absl::Status& why) {
  constexpr size_t kMost = 500;
  std::string text(why.message().substr(0, kMost));
  for (char& c : text) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(c))) c = '?';
  }
  return absl::InvalidArgumentError(absl::StrCat(what, text));
}

absl::Status NoDefinition(const absl::Status& why) {
  return Because("could not parse the schema's definition: ", why);
}

absl::Status CannotFollow(const absl::Status& why) {
  return Because("the revision is not compatible with the one before it: ", why);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const SchemaDefinition>> SchemaDefinition::Parse(
    const pb::Schema& schema) {
  const std::string& text = schema.definition();
  if (text.size() > kMaxDefinitionBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a schema's definition has ", text.size(),
                                                   " bytes, at most ", kMaxDefinitionBytes));
  }
  if (schema.type() == pb::Schema::AVRO) {
    auto avro = AvroSchema::Parse(text);
    if (!avro.ok()) return NoDefinition(avro.status());
    return std::shared_ptr<const SchemaDefinition>(new SchemaDefinition(*std::move(avro)));
  }
  if (schema.type() == pb::Schema::PROTOCOL_BUFFER) {
    auto proto = ProtoSchema::Parse(text);
    if (!proto.ok()) return NoDefinition(proto.status());
    return std::shared_ptr<const SchemaDefinition>(new SchemaDefinition(*std::move(proto)));
  }
  return absl::InvalidArgumentError("a schema needs a type, AVRO or PROTOCOL_BUFFER");
}

absl::Status SchemaDefinition::CheckMessage(absl::string_view data, pb::Encoding encoding) const {
  const bool json = encoding == pb::JSON;
  absl::Status status;
  if (const auto* avro = std::get_if<AvroSchema>(&body_)) {
    status = json ? CheckAvroJson(avro->root(), data) : CheckAvroBinary(avro->root(), data);
  } else {
    const ProtoSchema& proto = *std::get<std::unique_ptr<ProtoSchema>>(body_);
    status = json ? proto.CheckJson(data) : proto.CheckBinary(data);
  }
  return status.ok() ? status : Because("", status);
}

absl::Status SchemaDefinition::CheckRevises(const SchemaDefinition& older) const {
  if (body_.index() != older.body_.index()) {
    return absl::InvalidArgumentError("a revision must have the type of its schema");
  }
  if (const auto* avro = std::get_if<AvroSchema>(&body_)) {
    // Messages of both revisions are read with both.
    const AvroType& old = std::get<AvroSchema>(older.body_).root();
    for (const auto& [reader, writer] :
         {std::pair(&avro->root(), &old), std::pair(&old, &avro->root())}) {
      if (auto s = CheckAvroReads(*reader, *writer); !s.ok()) return CannotFollow(s);
    }
    return absl::OkStatus();
  }
  const absl::Status status = std::get<std::unique_ptr<ProtoSchema>>(body_)->CheckRevises(
      *std::get<std::unique_ptr<ProtoSchema>>(older.body_));
  return status.ok() ? status : CannotFollow(status);
}

}  // namespace postbox::emulator

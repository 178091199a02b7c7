// Schemas, and messages against them: a definition is refused with a reason, or it is compatible
// with itself, and every message follows it or does not.
#include <algorithm>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/quiet_protobuf.h"
#include "worker/emulator/schema/schema_definition.h"

using postbox::emulator::SchemaDefinition;
using postbox::fuzz::Input;
namespace pb = google::pubsub::v1;

namespace {

using Definition = std::shared_ptr<const SchemaDefinition>;

// A reason goes into a header of the answer.
bool IsReason(const absl::Status& status) {
  const absl::string_view text = status.message();
  return status.code() == absl::StatusCode::kInvalidArgument && !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

Definition Parse(pb::Schema::Type type, std::string_view text) {
  pb::Schema schema;
  schema.set_type(type);
  schema.set_definition(std::string(text));
  auto definition = SchemaDefinition::Parse(schema);
  FUZZ_CHECK(definition.ok() || IsReason(definition.status()), text);
  if (!definition.ok()) return nullptr;
  FUZZ_CHECK((*definition)->CheckRevises(**definition).ok(), text);
  return *std::move(definition);
}

}  // namespace

// A byte for the type; two definitions, a line each; then a message.
FUZZ(Input* input) {
  postbox::fuzz::QuietProtobuf();
  const auto type = input->Byte() == 'a' ? pb::Schema::AVRO : pb::Schema::PROTOCOL_BUFFER;
  const std::string_view text = input->Line();
  const std::string_view other_text = input->Line();
  const Definition definition = Parse(type, text);
  const Definition other = Parse(type, other_text);
  const std::string data(input->Rest());
  if (definition == nullptr) return;
  for (const pb::Encoding encoding : {pb::JSON, pb::BINARY}) {
    const absl::Status status = definition->CheckMessage(data, encoding);
    FUZZ_CHECK(status.ok() || IsReason(status), data);
  }
  if (other == nullptr) return;
  const absl::Status forth = definition->CheckRevises(*other);
  FUZZ_CHECK(forth.ok() || IsReason(forth), text);
  // Each revision of Avro reads what the other has written.
  if (type == pb::Schema::AVRO) {
    FUZZ_CHECK(other->CheckRevises(*definition).ok() == forth.ok(), text);
  }
}

// The definition of a schema revision, of whichever type.
#ifndef POSTBOX_WORKER_EMULATOR_SCHEMA_SCHEMA_DEFINITION_H_
#define POSTBOX_WORKER_EMULATOR_SCHEMA_SCHEMA_DEFINITION_H_

#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/pubsub/v1/schema.pb.h"
#include "worker/emulator/schema/avro_schema.h"
#include "worker/emulator/schema/proto_schema.h"

namespace postbox::emulator {

class SchemaDefinition {
 public:
  // INVALID_ARGUMENT with the reason if the schema has no type, or a definition that is none.
  static absl::StatusOr<std::shared_ptr<const SchemaDefinition>> Parse(
      const google::pubsub::v1::Schema& schema);

  // INVALID_ARGUMENT with the reason if `data` does not follow the schema. JSON or BINARY.
  absl::Status CheckMessage(absl::string_view data, google::pubsub::v1::Encoding encoding) const;

  // INVALID_ARGUMENT with the reason if this cannot be a revision of the same schema.
  absl::Status CheckRevises(const SchemaDefinition& older) const;

 private:
  using Body = std::variant<AvroSchema, std::unique_ptr<ProtoSchema>>;
  explicit SchemaDefinition(Body body) : body_(std::move(body)) {}

  Body body_;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_SCHEMA_SCHEMA_DEFINITION_H_

// Values of Avro types in JSON: the data of messages, and the defaults of fields.
#ifndef POSTBOX_WORKER_EMULATOR_SCHEMA_AVRO_JSON_H_
#define POSTBOX_WORKER_EMULATOR_SCHEMA_AVRO_JSON_H_

#include <nlohmann/json_fwd.hpp>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "worker/emulator/schema/avro_schema.h"

namespace postbox::emulator {

enum class AvroJsonForm {
  kMessage,  // a value of a union is {"branch": value}, or null; every field is there
  kDefault,  // a value of a union is one of its first branch; fields that have a default may lack
};

// INVALID_ARGUMENT with the reason if `value` is none of the type.
absl::Status CheckAvroJson(const AvroType& type, const nlohmann::json& value, AvroJsonForm form);

// The same of the data of a message.
absl::Status CheckAvroJson(const AvroType& type, absl::string_view data);

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_SCHEMA_AVRO_JSON_H_

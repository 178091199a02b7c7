// The data of messages in Avro's binary encoding.
#ifndef POSTBOX_WORKER_EMULATOR_SCHEMA_AVRO_BINARY_H_
#define POSTBOX_WORKER_EMULATOR_SCHEMA_AVRO_BINARY_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "worker/emulator/schema/avro_schema.h"

namespace postbox::emulator {

// INVALID_ARGUMENT with the reason if `data` is not exactly one value of the type.
absl::Status CheckAvroBinary(const AvroType& type, absl::string_view data);

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_SCHEMA_AVRO_BINARY_H_

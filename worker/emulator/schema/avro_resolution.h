// Avro's schema resolution: whether one schema can read what another has written.
#ifndef POSTBOX_WORKER_EMULATOR_SCHEMA_AVRO_RESOLUTION_H_
#define POSTBOX_WORKER_EMULATOR_SCHEMA_AVRO_RESOLUTION_H_

#include "absl/status/status.h"
#include "worker/emulator/schema/avro_schema.h"

namespace postbox::emulator {

// INVALID_ARGUMENT with the reason if some value that `writer` describes cannot be read as one of
// `reader`.
absl::Status CheckAvroReads(const AvroType& reader, const AvroType& writer);

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_SCHEMA_AVRO_RESOLUTION_H_

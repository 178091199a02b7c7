// JSON from outside. A parsed value takes a hundred times the memory of its text if there is
// nothing in it but opening brackets, so what nests too deeply is not parsed at all.
#ifndef POSTBOX_WORKER_EMULATOR_SCHEMA_SHALLOW_JSON_H_
#define POSTBOX_WORKER_EMULATOR_SCHEMA_SHALLOW_JSON_H_

#include <nlohmann/json_fwd.hpp>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace postbox::emulator {

// Arrays and objects in each other. An Avro type takes three at most for each level of types.
inline constexpr int kMaxJsonDepth = 1000;

// INVALID_ARGUMENT if `text` is no JSON, or nests too deeply.
absl::Status ParseShallowJson(absl::string_view text, nlohmann::json* value);

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_SCHEMA_SHALLOW_JSON_H_

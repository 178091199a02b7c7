// The labels of a resource.
#ifndef POSTBOX_WORKER_EMULATOR_RULES_LABELS_H_
#define POSTBOX_WORKER_EMULATOR_RULES_LABELS_H_

#include <string>

#include "absl/status/status.h"
#include "google/protobuf/map.h"

namespace postbox::emulator {

// OK, or INVALID_ARGUMENT: there are at most 64; keys have 1 to 63 characters and values 0 to 63,
// of lower-case letters, digits, _ and -, where letters of other scripts count as lower-case; a key
// begins with a letter.
absl::Status CheckLabels(const google::protobuf::Map<std::string, std::string>& labels);

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_RULES_LABELS_H_

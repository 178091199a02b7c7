// Updates of resources by the fields that a mask names.
#ifndef POSTBOX_WORKER_EMULATOR_RULES_UPDATE_MASK_H_
#define POSTBOX_WORKER_EMULATOR_RULES_UPDATE_MASK_H_

#include <string>

#include "absl/status/status.h"
#include "google/protobuf/field_mask.pb.h"
#include "google/protobuf/message.h"

namespace postbox::emulator {

// INVALID_ARGUMENT if it names none.
absl::Status CheckMask(const google::protobuf::FieldMask& mask);

// Gives `changed` the field of `wanted`, of the same type; without the field, takes it away.
void ReplaceField(const std::string& path, const google::protobuf::Message& wanted,
                  google::protobuf::Message* changed);

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_RULES_UPDATE_MASK_H_

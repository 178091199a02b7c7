// What the emulator does not do is refused with UNIMPLEMENTED and the name of the field: a setting
// that is accepted and has no effect would hide mistakes until production.
#ifndef POSTBOX_WORKER_EMULATOR_RULES_UNSUPPORTED_H_
#define POSTBOX_WORKER_EMULATOR_RULES_UNSUPPORTED_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "google/pubsub/v1/pubsub.pb.h"

namespace postbox::emulator {

absl::Status Unsupported(absl::string_view field);

// Refuses a field that proto/ does not declare, in the message or in one that it contains.
absl::Status CheckKnown(const google::protobuf::Message& message);

// Refuses everything else that is declared and not done.
absl::Status CheckSupported(const google::pubsub::v1::Topic& topic);
absl::Status CheckSupported(const google::pubsub::v1::Subscription& subscription);

// The refusal of a field in an update_mask: UNIMPLEMENTED if an update of `type` is not done, and
// INVALID_ARGUMENT if the service has none.
absl::Status CannotUpdate(const google::protobuf::Descriptor& type, absl::string_view path);

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_RULES_UNSUPPORTED_H_

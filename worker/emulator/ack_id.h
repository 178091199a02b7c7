// Ack ids: which delivery of which message of which subscription. Every delivery has its own, so a
// stale one is told from the current one. They are as long as the real ones (clients must count
// their bytes) and of fixed form, so that a made-up id is recognised.
#ifndef POSTBOX_WORKER_EMULATOR_ACK_ID_H_
#define POSTBOX_WORKER_EMULATOR_ACK_ID_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace postbox::emulator {

struct AckId {
  uint64_t subscription = 0;  // tells a subscription from an earlier one of the same name
  uint64_t sequence = 0;      // the message
  uint64_t lease = 0;         // the delivery
};

std::string FormatAckId(const AckId& id);
// False if `text` was not made by FormatAckId.
bool ParseAckId(absl::string_view text, AckId* id);

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_ACK_ID_H_

// An ack id identifies a delivery of a message of a subscription. Every delivery has its own, so
// that a stale id differs from the current one. An id carries a check of 64 bits, so that one that
// the emulator did not issue is recognized. An id of an earlier run is well-formed, and stale.
//
// The ids are short. Those of the service have 184 characters and more; clients that send 3000 of
// them at once exceed the limit of a request with ids as long as that.
#ifndef POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_ACK_ID_H_
#define POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_ACK_ID_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace postbox::emulator {

struct AckId {
  uint64_t subscription = 0;  // differs from that of an earlier one of the same name
  uint64_t sequence = 0;      // the message
  uint64_t lease = 0;         // the delivery

  friend bool operator==(const AckId&, const AckId&) = default;
};

std::string FormatAckId(const AckId& id);
// The same, to memory that has room for it. Returns its end.
inline constexpr std::size_t kAckIdLength = 64;
char* WriteAckId(const AckId& id, char* out);
// False if `text` was not made by FormatAckId.
bool ParseAckId(absl::string_view text, AckId* id);

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_ACK_ID_H_

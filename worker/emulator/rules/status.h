// Errors. The emulator uses absl::Status with google.rpc details as payloads. Calls return
// grpc::Status with the same details in `grpc-status-details-bin`.
#ifndef POSTBOX_WORKER_EMULATOR_RULES_STATUS_H_
#define POSTBOX_WORKER_EMULATOR_RULES_STATUS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace postbox::emulator {

// The values of ErrorInfo.metadata for an ack id.
inline constexpr char kInvalidAckId[] = "PERMANENT_FAILURE_INVALID_ACK_ID";
inline constexpr char kUnorderedAckId[] = "TRANSIENT_FAILURE_UNORDERED_ACK_ID";

using Metadata = std::vector<std::pair<std::string, std::string>>;
using AckFailures = Metadata;  // (ack id, value)

// The same error with an ErrorInfo of Pub/Sub.
absl::Status WithErrorInfo(absl::Status status, const std::string& reason,
                           const Metadata& metadata);

// INVALID_ARGUMENT with an ErrorInfo that names each ack id; OK if there is none.
absl::Status AckFailureStatus(const AckFailures& failures);
// The reverse: the failures in the ErrorInfo of `status`; empty if it has none.
AckFailures GetAckFailures(const absl::Status& status);

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_RULES_STATUS_H_

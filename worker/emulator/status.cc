#include "worker/emulator/status.h"

#include "absl/strings/cord.h"
#include "google/rpc/error_details.pb.h"

namespace postbox::emulator {
namespace {
constexpr char kErrorInfoUrl[] = "type.googleapis.com/google.rpc.ErrorInfo";
}  // namespace

absl::Status AckFailureStatus(const AckFailures& failures) {
  if (failures.empty()) return absl::OkStatus();
  google::rpc::ErrorInfo info;
  info.set_reason("EXACTLY_ONCE_ACKID_FAILURE");
  info.set_domain("pubsub.googleapis.com");
  for (const auto& [id, what] : failures) (*info.mutable_metadata())[id] = what;
  absl::Status status = absl::InvalidArgumentError(
      "some acknowledgement ids in the request were invalid; their state is in the error details");
  status.SetPayload(kErrorInfoUrl, absl::Cord(info.SerializeAsString()));
  return status;
}

AckFailures GetAckFailures(const absl::Status& status) {
  AckFailures failures;
  google::rpc::ErrorInfo info;
  const auto payload = status.GetPayload(kErrorInfoUrl);
  if (!payload || !info.ParseFromString(std::string(*payload))) return failures;
  for (const auto& [id, what] : info.metadata()) failures.emplace_back(id, what);
  return failures;
}

}  // namespace postbox::emulator

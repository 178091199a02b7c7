#include "worker/emulator/rules/status.h"

#include "absl/strings/cord.h"
#include "google/rpc/error_details.pb.h"

namespace postbox::emulator {
namespace {
constexpr char kErrorInfoUrl[] = "type.googleapis.com/google.rpc.ErrorInfo";
}  // namespace

absl::Status WithErrorInfo(absl::Status status, const std::string& reason,
                           const Metadata& metadata) {
  google::rpc::ErrorInfo info;
  info.set_reason(reason);
  info.set_domain("pubsub.googleapis.com");
  for (const auto& [key, value] : metadata) (*info.mutable_metadata())[key] = value;
  status.SetPayload(kErrorInfoUrl, absl::Cord(info.SerializeAsString()));
  return status;
}

absl::Status AckFailureStatus(const AckFailures& failures) {
  if (failures.empty()) return absl::OkStatus();
  return WithErrorInfo(
      absl::InvalidArgumentError("some acknowledgement ids in the request were invalid; their "
                                 "state is in the error details"),
      "EXACTLY_ONCE_ACKID_FAILURE", failures);
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

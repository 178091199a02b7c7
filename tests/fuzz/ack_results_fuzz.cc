// What a failed acknowledgement says of each id, in status details of any bytes and in well-formed
// ones.
#include "worker/pubsub/pull/ack_results.h"

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "proto/rules/error_class.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/quiet_protobuf.h"

using postbox::fuzz::Input;
using postbox::pubsub::AckEntry;
using postbox::pubsub::AckResult;

namespace {

std::vector<AckResult> Results(int code, const std::string& details,
                               const std::vector<AckEntry>& entries) {
  const grpc::Status status(static_cast<grpc::StatusCode>(code), "text", details);
  const auto results = postbox::pubsub::AckResults(status, entries);
  FUZZ_CHECK(results.size() == entries.size(), details);
  return results;
}

AckResult Expected(const std::string& value, AckResult otherwise) {
  if (value.starts_with("TRANSIENT_")) return AckResult::kTransient;
  return value.starts_with("PERMANENT_") ? AckResult::kPermanent : otherwise;
}

}  // namespace

// A code; ack ids, each with what an ErrorInfo says of it, to an empty line; bytes that stand for
// details.
FUZZ(Input* input) {
  postbox::fuzz::QuietProtobuf();
  const int code = input->Byte() % 17;
  std::list<std::string> ids;
  std::vector<AckEntry> entries;
  google::rpc::ErrorInfo info;
  info.set_reason("EXACTLY_ONCE_ACKID_FAILURE");
  while (!input->empty()) {
    const std::string& id = ids.emplace_back(input->Line());
    if (id.empty()) break;
    entries.push_back({.handle = entries.size(), .ack_id = id});
    const std::string said(input->Line());
    if (!said.empty()) (*info.mutable_metadata())[id] = said;
  }
  const bool retry = postbox::pubsub::RetryUnary(static_cast<grpc::StatusCode>(code));
  const AckResult of_code =
      code == 0 ? AckResult::kSuccess : (retry ? AckResult::kTransient : AckResult::kPermanent);
  const std::string bytes(input->Rest());
  for (const AckResult result : Results(code, "", entries)) FUZZ_CHECK(result == of_code, bytes);
  const auto any = Results(code, bytes, entries);
  if (code == 0) {
    for (const AckResult result : any) FUZZ_CHECK(result == AckResult::kSuccess, bytes);
    return;
  }

  google::rpc::Status details;
  details.set_code(code);
  google::protobuf::Any other;
  other.set_type_url(bytes);
  other.set_value(bytes);
  *details.add_details() = other;
  details.add_details()->PackFrom(info);
  const auto results = Results(code, details.SerializePartialAsString(), entries);
  if (!details.ParseFromString(details.SerializePartialAsString())) return;  // not UTF-8
  // Texts that are not UTF-8 make the map one that cannot be read, which counts as none.
  google::rpc::ErrorInfo again;
  if (!again.ParseFromString(info.SerializePartialAsString())) info.clear_metadata();
  bool names_any = false;
  for (const auto& [id, said] : info.metadata()) {
    names_any |= Expected(said, AckResult::kSuccess) != AckResult::kSuccess;
  }
  if (other.Is<google::rpc::ErrorInfo>()) return;  // the first one counts
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto said = info.metadata().find(std::string(entries[i].ack_id));
    const std::string value = said == info.metadata().end() ? "" : said->second;
    FUZZ_CHECK(results[i] == (names_any ? Expected(value, AckResult::kSuccess) : of_code), bytes);
  }
}

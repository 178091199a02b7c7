#include "worker/pubsub/pull/ack_results.h"

#include <string_view>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "proto/rules/error_class.h"

namespace postbox::pubsub {

std::vector<AckResult> AckResults(const grpc::Status& status,
                                  const std::vector<AckEntry>& entries) {
  if (status.ok()) return std::vector(entries.size(), AckResult::kSuccess);

  google::rpc::Status details;
  google::rpc::ErrorInfo info;
  // Details that cannot be parsed count as none.
  if (details.ParseFromString(status.error_details())) {
    for (const auto& any : details.details()) {
      if (any.Is<google::rpc::ErrorInfo>() && any.UnpackTo(&info)) break;
      info.Clear();  // it may have been read in part
    }
  }
  // The metadata may hold other things than results, for example service and method. It is a map of
  // results only if it maps an id of this request to a value of either kind.
  std::vector<AckResult> results(entries.size(), AckResult::kSuccess);
  bool names_any = false;
  for (size_t i = 0; i < entries.size(); ++i) {
    auto it = info.metadata().find(std::string(entries[i].ack_id));
    if (it == info.metadata().end()) continue;
    std::string_view value = it->second;
    if (value.starts_with("TRANSIENT_")) {
      results[i] = AckResult::kTransient;
      names_any = true;
    } else if (value.starts_with("PERMANENT_")) {
      results[i] = AckResult::kPermanent;
      names_any = true;
    }
  }
  if (names_any) return results;
  return std::vector(entries.size(), RetryUnary(status.error_code()) ? AckResult::kTransient
                                                                     : AckResult::kPermanent);
}

}  // namespace postbox::pubsub

#include "worker/cli/base/seek.h"

#include <google/protobuf/util/time_util.h>

#include <algorithm>

namespace postbox::cli {
namespace {

using google::protobuf::util::TimeUtil;

Failure FailureOf(const grpc::Status& status) {
  return {StatusText(status), RemedyOf(status.error_code())};
}

// Whether the request may have been carried out.
bool IsNoAnswer(grpc::StatusCode code) {
  return code == grpc::StatusCode::DEADLINE_EXCEEDED || code == grpc::StatusCode::UNAVAILABLE ||
         code == grpc::StatusCode::CANCELLED || code == grpc::StatusCode::UNKNOWN ||
         code == grpc::StatusCode::INTERNAL;
}

}  // namespace

std::optional<int64_t> SeekTime(const std::string& text) {
  google::protobuf::Timestamp time;
  if (!TimeUtil::FromString(text, &time)) return std::nullopt;
  return time.seconds();
}

std::optional<SeekFailure> Seek(const OpenPlace& broker, const std::string& subscription,
                                const SeekTarget& target) {
  pb::SeekRequest request;
  if (!target.time.empty() && !TimeUtil::FromString(target.time, request.mutable_time())) {
    return SeekFailure{{"time \"" + target.time + "\" is not one", kSeekTimeRemedy}};
  }
  std::string problem;
  request.set_subscription(broker.Name("subscriptions", subscription, &problem));
  if (!target.snapshot.empty()) {
    request.set_snapshot(broker.Name("snapshots", target.snapshot, &problem));
  }
  if (!problem.empty()) return SeekFailure{{problem, ""}};
  pb::SeekResponse response;
  grpc::ClientContext context;
  broker.admin->Prepare(&context, "subscription", request.subscription());
  const grpc::Status status = broker.admin->subscriber()->Seek(&context, request, &response);
  if (!status.ok()) return SeekFailure{FailureOf(status), IsNoAnswer(status.error_code())};
  return std::nullopt;
}

std::optional<Failure> ReadRetention(const OpenPlace& broker, const std::string& subscription,
                                     std::chrono::seconds* retention) {
  std::string problem;
  const std::string name = broker.Name("subscriptions", subscription, &problem);
  if (!problem.empty()) return Failure{problem, ""};
  pb::Subscription found;
  const grpc::Status status = broker.admin->GetSubscription(name, &found);
  if (!status.ok()) return FailureOf(status);
  const auto of_subscription =
      found.retain_acked_messages() ? found.message_retention_duration().seconds() : 0;
  *retention = std::chrono::seconds(
      std::max<int64_t>(of_subscription, found.topic_message_retention_duration().seconds()));
  return std::nullopt;
}

}  // namespace postbox::cli

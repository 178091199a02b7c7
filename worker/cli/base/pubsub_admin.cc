#include "worker/cli/base/pubsub_admin.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "worker/pubsub/auth/credentials.h"
#include "worker/pubsub/channel.h"

namespace postbox::cli {
namespace {

const char* CodeName(grpc::StatusCode code) {
  constexpr const char* kNames[] = {"OK",
                                    "CANCELLED",
                                    "UNKNOWN",
                                    "INVALID_ARGUMENT",
                                    "DEADLINE_EXCEEDED",
                                    "NOT_FOUND",
                                    "ALREADY_EXISTS",
                                    "PERMISSION_DENIED",
                                    "RESOURCE_EXHAUSTED",
                                    "FAILED_PRECONDITION",
                                    "ABORTED",
                                    "OUT_OF_RANGE",
                                    "UNIMPLEMENTED",
                                    "INTERNAL",
                                    "UNAVAILABLE",
                                    "DATA_LOSS",
                                    "UNAUTHENTICATED"};
  const auto index = static_cast<size_t>(code);
  return index < std::size(kNames) ? kNames[index] : "UNKNOWN";
}

}  // namespace

std::string StatusText(const grpc::Status& status) {
  return std::string(CodeName(status.error_code())) +
         (status.error_message().empty() ? "" : ": " + status.error_message());
}

std::unique_ptr<PubSubAdmin> PubSubAdmin::Open(const pubsub::Endpoint& endpoint,
                                               const std::string& quota_project,
                                               std::string* error) {
  std::optional<pubsub::Credentials> credentials = pubsub::MakeCredentials(endpoint, {}, error);
  if (!credentials) return nullptr;
  if (credentials->tokens != nullptr) {
    *error = credentials->tokens->Wait(kDeadline).error;
    if (!error->empty()) return nullptr;
  }
  return std::unique_ptr<PubSubAdmin>(new PubSubAdmin(
      pubsub::MakeChannel(endpoint, credentials->channel, 0), std::move(credentials->tokens),
      quota_project.empty() ? credentials->quota_project : quota_project));
}

PubSubAdmin::PubSubAdmin(std::shared_ptr<grpc::Channel> channel,
                         std::unique_ptr<pubsub::TokenSource> tokens, std::string quota_project)
    : channel_(std::move(channel)),
      tokens_(std::move(tokens)),
      quota_project_(std::move(quota_project)),
      publisher_(pb::Publisher::NewStub(channel_)),
      subscriber_(pb::Subscriber::NewStub(channel_)),
      schemas_(pb::SchemaService::NewStub(channel_)),
      policies_(iam::IAMPolicy::NewStub(channel_)) {}

void PubSubAdmin::Prepare(grpc::ClientContext* context, std::string_view field,
                          const std::string& value, std::chrono::seconds deadline) const {
  context->set_deadline(std::min(std::chrono::system_clock::now() + deadline, end_));
  // Without a token Pub/Sub says what is missing.
  const std::string token = tokens_ == nullptr ? "" : tokens_->Wait(deadline).header;
  pubsub::AddHeaders(context, pubsub::RouteHeader(field, value), quota_project_, token);
}

grpc::Status PubSubAdmin::Connect(const std::string& project) {
  if (channel_->GetState(true) == GRPC_CHANNEL_READY) return grpc::Status::OK;
  // A call says why there is no connection; whatever a server answers to this one, there is one.
  pb::Topic topic;
  const grpc::Status status = GetTopic("projects/" + project + "/topics/postbox-doctor", &topic);
  const bool ready = channel_->GetState(false) == GRPC_CHANNEL_READY;
  return ready ? grpc::Status::OK : status;
}

grpc::Status PubSubAdmin::GetTopic(const std::string& name, pb::Topic* topic) {
  grpc::ClientContext context;
  Prepare(&context, "topic", name);
  pb::GetTopicRequest request;
  request.set_topic(name);
  return publisher_->GetTopic(&context, request, topic);
}

grpc::Status PubSubAdmin::GetSubscription(const std::string& name, pb::Subscription* subscription) {
  grpc::ClientContext context;
  Prepare(&context, "subscription", name);
  pb::GetSubscriptionRequest request;
  request.set_subscription(name);
  return subscriber_->GetSubscription(&context, request, subscription);
}

grpc::Status PubSubAdmin::TestPermissions(const std::string& resource,
                                          const std::vector<std::string>& permissions,
                                          std::vector<std::string>* held) {
  grpc::ClientContext context;
  Prepare(&context, "resource", resource);
  iam::TestIamPermissionsRequest request;
  request.set_resource(resource);
  for (const std::string& permission : permissions) request.add_permissions(permission);
  iam::TestIamPermissionsResponse response;
  const grpc::Status status = policies_->TestIamPermissions(&context, request, &response);
  held->assign(response.permissions().begin(), response.permissions().end());
  return status;
}

}  // namespace postbox::cli

#include "worker/cli/base/pubsub_admin.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/generic/generic_stub.h>

#include <future>
#include <utility>

#include "worker/pubsub/channel.h"
#include "worker/pubsub/credentials.h"

namespace postbox::cli {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;
using google::protobuf::io::StringOutputStream;

// google.iam.v1, of which nothing else is needed: TestIamPermissionsRequest has the resource in
// field 1 and the permissions in field 2, and the response has those that are held in field 1.
constexpr char kTestPermissions[] = "/google.iam.v1.IAMPolicy/TestIamPermissions";

grpc::ByteBuffer EncodeRequest(const std::string& resource,
                               const std::vector<std::string>& permissions) {
  std::string bytes;
  {
    StringOutputStream stream(&bytes);
    CodedOutputStream out(&stream);
    WireFormatLite::WriteString(1, resource, &out);
    for (const std::string& permission : permissions) {
      WireFormatLite::WriteString(2, permission, &out);
    }
  }
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

bool DecodeResponse(const grpc::ByteBuffer& buffer, std::vector<std::string>* held) {
  grpc::Slice slice;
  if (!buffer.DumpToSingleSlice(&slice).ok()) return false;
  CodedInputStream in(slice.begin(), static_cast<int>(slice.size()));
  while (const uint32_t tag = in.ReadTag()) {
    if (WireFormatLite::GetTagFieldNumber(tag) != 1) {
      if (!WireFormatLite::SkipField(&in, tag)) return false;
      continue;
    }
    std::string text;
    if (!WireFormatLite::ReadString(&in, &text)) return false;
    held->push_back(std::move(text));
  }
  return in.ConsumedEntireMessage();
}

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
      subscriber_(pb::Subscriber::NewStub(channel_)) {}

void PubSubAdmin::Prepare(grpc::ClientContext* context, std::string_view field,
                          const std::string& value, std::chrono::seconds deadline) const {
  context->set_deadline(std::chrono::system_clock::now() + deadline);
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
  const grpc::ByteBuffer request = EncodeRequest(resource, permissions);
  grpc::ByteBuffer response;
  std::promise<grpc::Status> done;
  grpc::GenericStub(channel_).UnaryCall(
      &context, kTestPermissions, grpc::StubOptions(), &request, &response,
      [&done](grpc::Status status) { done.set_value(std::move(status)); });
  grpc::Status status = done.get_future().get();
  if (status.ok() && !DecodeResponse(response, held)) {
    status = grpc::Status(grpc::StatusCode::INTERNAL, "the answer is not one");
  }
  return status;
}

}  // namespace postbox::cli

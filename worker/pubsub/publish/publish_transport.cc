#include "worker/pubsub/publish/publish_transport.h"

#include <grpcpp/support/async_unary_call.h>
#include <grpcpp/support/byte_buffer.h>

#include <chrono>
#include <utility>

#include "proto/rules/error_class.h"
#include "worker/pubsub/publish/message_wire.h"
#include "worker/pubsub/publish/traced_request.h"

namespace postbox::pubsub {

namespace {

// How often the deadlines are checked while there are calls.
constexpr std::chrono::milliseconds kWatchInterval(100);

constexpr char kPublishMethod[] = "/google.pubsub.v1.Publisher/Publish";

grpc::ByteBuffer Encode(const PublishHost::Request& request) {
  grpc::Slice slice(request.size);
  auto* const begin =
      const_cast<std::uint8_t*>(slice.begin());  // not shared before the buffer takes it
  std::uint8_t* out = WriteTopic(request.topic, begin);
  for (const OutgoingMessage* message : request.messages) out = WriteMessage(message->encoded, out);
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace

struct PublishTransport::Call {
  EventLoop::Clock::time_point deadline;
  bool expired = false;
  bool repeated = false;
  bool ended = false;  // Finished() is posted
  int channel = 0;
  std::shared_ptr<const std::string> route;
  std::unique_ptr<TracedRequest> traced;  // null: no message is of a trace
  grpc::ByteBuffer request;               // as long as it may have to be sent again
  std::string authorization;
  std::unique_ptr<grpc::ClientContext> context;  // null: not begun
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
  grpc::ByteBuffer response;
  grpc::Status status;
};

PublishTransport::PublishTransport(EventLoop* loop, const PublisherOptions& options,
                                   Credentials credentials, OnResponse on_response)
    : loop_(loop),
      endpoint_(options.endpoint),
      channel_credentials_(std::move(credentials.channel)),
      quota_project_(options.quota_project.empty() ? credentials.quota_project
                                                   : options.quota_project),
      compression_(options.compression),
      spans_(options.spans),
      on_response_(std::move(on_response)),
      authorizer_(loop, std::move(credentials.tokens)) {}

PublishTransport::~PublishTransport() = default;

grpc::GenericStub* PublishTransport::Stub(int channel) {
  const auto at = static_cast<std::size_t>(channel);
  if (at >= stubs_.size()) stubs_.resize(at + 1);
  if (stubs_[at] == nullptr) {
    stubs_[at] =
        std::make_unique<RenewedStub<grpc::GenericStub>>(endpoint_, channel_credentials_, channel);
  }
  return stubs_[at]->Get();
}

void PublishTransport::CloseChannel(int channel) {
  // Without a token no call has begun on it.
  const auto at = static_cast<std::size_t>(channel);
  if (at < stubs_.size()) stubs_[at].reset();
}

void PublishTransport::Send(const PublishHost::Request& request) {
  auto& call = calls_[request.id];
  call = std::make_unique<Call>();
  if (request.topic != last_topic_) {
    last_topic_ = request.topic;
    last_route_ = std::make_shared<const std::string>(RouteHeader("topic", request.topic));
  }
  call->route = last_route_;
  call->channel = request.channel;
  call->request = Encode(request);
  if (spans_ != nullptr) call->traced = TracedRequest::Of(request);
  call->deadline = EventLoop::Clock::now() + request.timeout;
  if (!std::exchange(watching_, true)) Watch();
  authorizer_.WhenReady(
      [this, id = request.id](const Authorization& answer) { Begin(id, answer); });
}

void PublishTransport::Begin(std::uint64_t request_id, const Authorization& authorization) {
  const auto at = calls_.find(request_id);
  if (at == calls_.end() || at->second->ended) return;
  Call* const call = at->second.get();
  if (authorization.code != kOk) {
    return EndUnsent(request_id, call, authorization.code, authorization.error);
  }
  call->authorization = authorization.header;
  call->context = std::make_unique<grpc::ClientContext>();
  AddHeaders(call->context.get(), *call->route, quota_project_, call->authorization);
  if (compression_ && call->request.Length() >= PublisherOptions::kLeastCompressed) {
    call->context->set_compression_algorithm(GRPC_COMPRESS_GZIP);
  }
  call->reader = Stub(call->channel)
                     ->PrepareUnaryCall(call->context.get(), kPublishMethod, call->request,
                                        loop_->completion_queue());
  if (!authorizer_.has_tokens()) call->request.Clear();
  call->reader->StartCall();
  call->reader->Finish(&call->response, &call->status,
                       loop_->Tag([this, request_id](bool) { Finished(request_id); }));
}

void PublishTransport::EndUnsent(std::uint64_t request_id, Call* call, int code,
                                 const std::string& message) {
  if (std::exchange(call->ended, true)) return;
  call->status = grpc::Status(static_cast<grpc::StatusCode>(code), message);
  loop_->Post([this, request_id] { Finished(request_id); });
}

void PublishTransport::Finished(std::uint64_t request_id) {
  const auto at = calls_.find(request_id);
  Call& call = *at->second;
  const bool may_repeat = !call.ended && !call.repeated && !call.expired;
  if (authorizer_.Refused(call.authorization, call.status.error_code(),
                          call.status.error_message()) &&
      may_repeat) {
    call.repeated = true;
    call.reader.reset();
    call.context.reset();
    return authorizer_.WhenReady(
        [this, request_id](const Authorization& answer) { Begin(request_id, answer); });
  }
  const auto node = calls_.extract(at);
  PublishScheduler::Response response;
  response.code = call.status.error_code();
  response.message = call.status.error_message();
  response.begun = !call.ended || call.repeated;
  if (call.expired && response.code == kCancelled) {
    response.code = kDeadlineExceeded;
    response.message = "no answer in time";
  }
  grpc::Slice slice;
  std::string_view answer;
  if (call.status.ok() && call.response.DumpToSingleSlice(&slice).ok()) {
    answer = {reinterpret_cast<const char*>(slice.begin()), slice.size()};
    response.message_ids = CountMessageIds(answer);
  }
  if (call.traced != nullptr) {
    spans_->Add(call.traced->End(response.code, response.message, answer));
  }
  on_response_(request_id, std::move(response));
}

void PublishTransport::Watch() {
  loop_->After(kWatchInterval, [this] {
    const auto now = EventLoop::Clock::now();
    for (auto& [id, call] : calls_) {
      if (call->deadline > now) continue;
      call->expired = true;
      Abort(id);
    }
    watching_ = !calls_.empty();
    if (watching_) Watch();
  });
}

void PublishTransport::Abort(std::uint64_t request_id) {
  const auto at = calls_.find(request_id);
  if (at == calls_.end()) return;
  Call* const call = at->second.get();
  if (call->context != nullptr) {
    call->context->TryCancel();
  } else {
    EndUnsent(request_id, call, kCancelled, "");
  }
}

}  // namespace postbox::pubsub

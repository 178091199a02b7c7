#include "worker/pubsub/publish_transport.h"

#include <grpcpp/support/async_unary_call.h>
#include <grpcpp/support/byte_buffer.h>

#include <chrono>
#include <utility>

#include "proto/rules/error_class.h"
#include "worker/pubsub/message_wire.h"

namespace postbox::pubsub {

namespace {

// How often the deadlines are checked while there are calls.
constexpr std::chrono::milliseconds kWatchInterval(100);

constexpr char kPublishMethod[] = "/google.pubsub.v1.Publisher/Publish";

grpc::ByteBuffer Encode(const PublishScheduler::Request& request) {
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
  grpc::ClientContext context;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
  grpc::ByteBuffer response;
  grpc::Status status;
};

PublishTransport::PublishTransport(EventLoop* loop, Endpoint endpoint, Credentials credentials,
                                   std::string quota_project, OnResponse on_response)
    : loop_(loop),
      endpoint_(std::move(endpoint)),
      credentials_(std::move(credentials)),
      quota_project_(std::move(quota_project)),
      on_response_(std::move(on_response)) {}

PublishTransport::~PublishTransport() = default;

grpc::GenericStub* PublishTransport::Stub(int channel) {
  const auto at = static_cast<std::size_t>(channel);
  if (at >= stubs_.size()) stubs_.resize(at + 1);
  if (stubs_[at] == nullptr) {
    stubs_[at] = std::make_unique<grpc::GenericStub>(MakeChannel(endpoint_, credentials_, channel));
  }
  return stubs_[at].get();
}

void PublishTransport::CloseChannel(int channel) {
  stubs_[static_cast<std::size_t>(channel)].reset();
}

void PublishTransport::Send(const PublishScheduler::Request& request) {
  auto& call = calls_[request.id];
  call = std::make_unique<Call>();
  if (request.topic != last_topic_) {
    last_topic_ = request.topic;
    last_route_ = RouteHeader("topic", request.topic);
  }
  AddHeaders(&call->context, last_route_, quota_project_);
  call->deadline = EventLoop::Clock::now() + request.timeout;
  if (!std::exchange(watching_, true)) Watch();
  call->reader = Stub(request.channel)
                     ->PrepareUnaryCall(&call->context, kPublishMethod, Encode(request),
                                        loop_->completion_queue());
  call->reader->StartCall();
  call->reader->Finish(&call->response, &call->status,
                       loop_->Tag([this, id = request.id](bool) { Finished(id); }));
}

void PublishTransport::Finished(std::uint64_t request_id) {
  auto node = calls_.extract(request_id);
  Call& call = *node.mapped();
  PublishScheduler::Response response;
  response.code = call.status.error_code();
  response.message = call.status.error_message();
  if (call.expired && response.code == kCancelled) {
    response.code = kDeadlineExceeded;
    response.message = "no answer in time";
  }
  grpc::Slice answer;
  if (call.status.ok() && call.response.DumpToSingleSlice(&answer).ok()) {
    response.message_ids = CountMessageIds(
        std::string_view(reinterpret_cast<const char*>(answer.begin()), answer.size()));
  }
  on_response_(request_id, std::move(response));
}

void PublishTransport::Watch() {
  loop_->After(kWatchInterval, [this] {
    const auto now = EventLoop::Clock::now();
    for (auto& [id, call] : calls_) {
      if (call->deadline > now) continue;
      call->expired = true;
      call->context.TryCancel();
    }
    watching_ = !calls_.empty();
    if (watching_) Watch();
  });
}

void PublishTransport::Abort(std::uint64_t request_id) {
  const auto at = calls_.find(request_id);
  if (at != calls_.end()) at->second->context.TryCancel();
}

}  // namespace postbox::pubsub

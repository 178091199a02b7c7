#include "worker/pubsub/pull/ack_sender.h"

#include <grpcpp/client_context.h>
#include <grpcpp/support/byte_buffer.h>

#include <chrono>
#include <utility>
#include <vector>

#include "extension/rules/backoff.h"
#include "proto/rules/error_class.h"
#include "worker/pubsub/pull/ack_wire.h"
#include "worker/pubsub/traces/messaging_spans.h"

namespace postbox::pubsub {
namespace {

constexpr std::chrono::seconds kAckTimeout{60};
// An answer after LeaseKeeper::kMargin comes too late for the lease.
constexpr std::chrono::seconds kModifyTimeout{10};
constexpr std::chrono::seconds kKeepTryingAcks{600};
constexpr int kModifyAttempts = 3;
constexpr char kAcknowledgeMethod[] = "/google.pubsub.v1.Subscriber/Acknowledge";
constexpr char kModifyMethod[] = "/google.pubsub.v1.Subscriber/ModifyAckDeadline";

CallReport::Kind KindOf(const AckRequest& request) {
  if (request.is_ack()) return CallReport::Kind::kAck;
  return request.deadline_seconds == 0 ? CallReport::Kind::kNack : CallReport::Kind::kModack;
}

}  // namespace

struct AckSender::Call {
  std::unique_ptr<grpc::ClientContext> context;  // null: waits for a token
  std::string authorization;
  bool repeated = false;
  EventLoop::Clock::time_point begun = EventLoop::Clock::now();
  AckRequest request;
  std::vector<SpanLink> links;  // of its span; none: it has no span
  std::int64_t span_begun = 0;  // SpanTime()
  grpc::ByteBuffer response;
  grpc::Status status;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
};

AckSender::AckSender(EventLoop* loop, Authorizer* authorizer, std::unique_ptr<Stub> stub,
                     Options options, Callbacks callbacks)
    : loop_(loop),
      authorizer_(authorizer),
      stub_(std::move(stub)),
      options_(std::move(options)),
      callbacks_(std::move(callbacks)),
      batcher_(options_.subscription, options_.outstanding) {}

void AckSender::Pump() {
  const auto now = EventLoop::Clock::now();
  while (auto request = batcher_.Take(now)) Send(std::move(*request));
  loop_->Cancel(timer_);
  timer_ = {};
  if (auto due = batcher_.NextDue()) {
    timer_ = loop_->After(*due - now, [this] { Pump(); });
  }
}

void AckSender::Send(AckRequest request) {
  if (request.deadline_seconds > 0) {
    // Drops the leases of messages that were settled while the request was gathered.
    std::erase_if(request.entries,
                  [this](const AckEntry& entry) { return !callbacks_.needs_lease(entry.handle); });
    if (request.entries.empty()) return;
  }
  auto call = std::make_shared<Call>();
  call->request = std::move(request);
  if (options_.spans != nullptr) {
    call->links = Links(call->request);
    call->span_begun = SpanTime();
  }
  calls_.insert(call);
  authorizer_->WhenReady([this, call](const Authorization& answer) { Begin(call, answer); });
}

void AckSender::Begin(const std::shared_ptr<Call>& call, const Authorization& authorization) {
  if (authorization.code != kOk) {
    call->status =
        grpc::Status(static_cast<grpc::StatusCode>(authorization.code), authorization.error);
    return loop_->Post([this, call] { OnAnswer(call); });
  }
  const AckRequest& request = call->request;
  call->authorization = authorization.header;
  call->context = std::make_unique<grpc::ClientContext>();
  AddHeaders(call->context.get(), RouteHeader("subscription", options_.subscription),
             options_.quota_project.empty() ? authorization.quota_project : options_.quota_project,
             call->authorization);
  call->context->set_deadline(std::chrono::system_clock::now() +
                              (request.is_ack() ? kAckTimeout : kModifyTimeout));
  const grpc::Slice message(EncodeAckRequest(options_.subscription, request));
  call->reader = stub_->Get()->PrepareUnaryCall(
      call->context.get(), request.is_ack() ? kAcknowledgeMethod : kModifyMethod,
      grpc::ByteBuffer(&message, 1), loop_->completion_queue());
  call->reader->StartCall();
  call->reader->Finish(&call->response, &call->status,
                       loop_->Tag([this, call](bool) { OnAnswer(call); }));
}

void AckSender::OnAnswer(const std::shared_ptr<Call>& call) {
  const bool refused = authorizer_->Refused(call->authorization, call->status.error_code(),
                                            call->status.error_message());
  if (refused && !std::exchange(call->repeated, true)) {
    call->reader.reset();
    call->context.reset();
    return authorizer_->WhenReady(
        [this, call](const Authorization& answer) { Begin(call, answer); });
  }
  calls_.erase(call);
  if (!call->links.empty()) AddSpan(call.get());
  AckRequest& request = call->request;
  callbacks_.on_call(
      {KindOf(request), call->status.error_code(), EventLoop::Clock::now() - call->begun});
  batcher_.Finished(request, EventLoop::Clock::now());
  const auto results = AckResults(call->status, request.entries);
  std::vector<AckEntry> again;
  for (size_t i = 0; i < request.entries.size(); ++i) {
    AckEntry& entry = request.entries[i];
    if (TriesAgain(request, &entry, results[i])) {
      again.push_back(std::move(entry));
    } else {
      callbacks_.on_result(entry.handle, request.deadline_seconds, results[i]);
    }
  }
  batcher_.Retry(request.deadline_seconds, std::move(again), EventLoop::Clock::now());
  if (!call->status.ok() && call->status.error_details().empty()) {
    callbacks_.on_failure(std::string(request.is_ack() ? "Acknowledge: " : "ModifyAckDeadline: ") +
                          StatusText(call->status.error_code(), call->status.error_message()));
  }
  callbacks_.on_answered();
}

bool AckSender::TriesAgain(const AckRequest& request, AckEntry* entry, AckResult result) const {
  if (result != AckResult::kTransient || !callbacks_.is_held(entry->handle)) return false;
  const auto now = EventLoop::Clock::now();
  const bool in_time = request.is_ack() ? now - entry->first_sent < kKeepTryingAcks
                                        : entry->attempts < kModifyAttempts;
  if (in_time) {
    entry->not_before = now + BackoffDelay(kAckBackoff, entry->attempts, JitterRandom());
  }
  return in_time;
}

std::vector<SpanLink> AckSender::Links(const AckRequest& request) const {
  std::vector<SpanLink> links;
  for (const AckEntry& entry : request.entries) {
    if (auto link = callbacks_.link_of(entry.handle)) links.push_back(std::move(*link));
  }
  return links;
}

void AckSender::AddSpan(Call* call) const {
  const AckRequest& request = call->request;
  const bool modack = request.deadline_seconds > 0;
  Span span = BatchSpan(request.is_ack() ? kAck : (modack ? kModack : kNack), options_.subscription,
                        std::move(call->links), request.entries.size(), call->span_begun);
  if (modack) span.Set(kAckDeadlineAttribute, request.deadline_seconds);
  if (!call->status.ok()) {
    span.error_type = StatusCodeName(call->status.error_code());
    span.error = call->status.error_message();
  }
  options_.spans->Add(std::move(span));
}

void AckSender::Cancel() {
  for (const auto& call : calls_) {
    if (call->context != nullptr) call->context->TryCancel();
  }
}

}  // namespace postbox::pubsub

#include "worker/pubsub/pull/pull_stream.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "proto/rules/error_class.h"
#include "worker/pubsub/channel.h"

namespace postbox::pubsub {

using google::pubsub::v1::StreamingPullRequest;
using Clock = EventLoop::Clock;

namespace {

constexpr char kPullMethod[] = "/google.pubsub.v1.Subscriber/StreamingPull";

std::optional<PullResponse> ParseResponse(const grpc::ByteBuffer& response) {
  grpc::Slice bytes;
  if (!response.DumpToSingleSlice(&bytes).ok()) return std::nullopt;
  return ReadPullResponse(
      std::string_view(reinterpret_cast<const char*>(bytes.begin()), bytes.size()));
}

}  // namespace

// One call. Its tags keep it alive. The flags tell which operations are in progress.
struct PullStream::Call {
  grpc::ClientContext context;
  std::string authorization;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<StreamingPullRequest, grpc::ByteBuffer>> stream;
  grpc::ByteBuffer response;
  grpc::Status status;
  bool started = false;
  bool reading = false;
  bool writing = false;
  bool ended = false;  // no new operation but Finish
  bool finishing = false;
  bool half_closed = false;
  bool answered = false;  // any response came
  bool ping_due = false;  // as soon as nothing is being written
  bool stalled = false;
  std::string unreadable;  // why a response could not be parsed
  Clock::time_point begun = Clock::now();
  Clock::time_point read_started;
  EventLoop::TimerId ping_timer;
  EventLoop::TimerId stall_timer;
  EventLoop::TimerId drain_timer;
};

PullStream::PullStream(EventLoop* loop, Stub* stub, Options options, Callbacks callbacks)
    : loop_(loop),
      stub_(stub),
      options_(std::move(options)),
      callbacks_(std::move(callbacks)),
      pings_(options_.ping_timeout) {}

void PullStream::Start() { Open(); }

void PullStream::Open() {
  options_.authorizer->WhenReady([this](const Authorization& answer) {
    if (closing_) return;
    if (answer.code != kOk) return Fail(answer.code, answer.error);
    Begin(answer);
  });
}

void PullStream::Begin(const Authorization& authorization) {
  auto call = std::make_shared<Call>();
  call_ = call;
  call->authorization = authorization.header;
  AddHeaders(&call->context, RouteHeader("subscription", options_.first_request.subscription()),
             options_.quota_project.empty() ? authorization.quota_project : options_.quota_project,
             authorization.header);
  call->stream = stub_->Get()->PrepareCall(&call->context, kPullMethod, loop_->completion_queue());
  call->writing = true;  // no other operation may be started before StartCall is complete
  call->stream->StartCall(loop_->Tag([this, call](bool ok) {
    call->writing = false;
    if (!ok) return End(call);
    call->started = true;
    call->ping_due = pings_.Opened();
    Write(call, options_.first_request);
    Read(call);
    SchedulePing(call);
    if (closing_) HalfClose(call);
  }));
}

void PullStream::Read(const std::shared_ptr<Call>& call) {
  if ((paused_ && !closing_) || !call->started || call->reading || call->ended) {
    return;
  }
  call->reading = true;
  call->read_started = Clock::now();
  call->stream->Read(&call->response, loop_->Tag([this, call](bool ok) { OnRead(call, ok); }));
}

void PullStream::Write(const std::shared_ptr<Call>& call, const StreamingPullRequest& request) {
  call->writing = true;
  call->stream->Write(request, loop_->Tag([this, call](bool) {
    call->writing = false;
    // If a write fails, the stream is dead. Then the read fails, too, after everything that can
    // still be read. Only the read ends the call, because Finish does not complete while messages
    // are unread.
    if (call->ended) return End(call);
    if (closing_) return HalfClose(call);
    if (call->ping_due) Ping(call);
  }));
}

void PullStream::OnRead(const std::shared_ptr<Call>& call, bool ok) {
  call->reading = false;
  if (!ok) return End(call);
  std::optional<PullResponse> response = ParseResponse(call->response);
  if (!response) {
    call->unreadable =
        "a response of " + std::to_string(call->response.Length()) + " bytes could not be parsed";
    call->context.TryCancel();
    return End(call);
  }
  if (!response->messages.empty()) {
    callbacks_.on_call({CallReport::Kind::kReceive, kOk, Clock::now() - call->read_started});
  }
  const bool first = !call->answered;
  call->answered = true;
  if (first) {
    pace_.Answered(Clock::now());
    repeated_ = false;
    options_.authorizer->Refused(call->authorization, kOk, "");
  }
  if (pings_.Responded(response->messages.empty())) Ping(call);
  callbacks_.on_response(*std::move(response), first);
  Read(call);
}

void PullStream::PauseReading(bool paused) {
  if (paused == paused_) return;
  paused_ = paused;
  if (!paused_ && call_) Read(call_);
}

void PullStream::End(const std::shared_ptr<Call>& call) {
  call->ended = true;
  if (call->writing || call->finishing) return;
  call->finishing = true;
  call->stream->Finish(&call->status, loop_->Tag([this, call](bool) { OnFinished(call); }));
}

void PullStream::OnFinished(const std::shared_ptr<Call>& call) {
  loop_->Cancel(call->ping_timer);
  loop_->Cancel(call->stall_timer);
  loop_->Cancel(call->drain_timer);
  call_.reset();
  const int code = call->status.error_code();
  callbacks_.on_call({CallReport::Kind::kStream, call->stalled ? int{kUnavailable} : code,
                      Clock::now() - call->begun});
  if (closing_) return;
  if (call->stalled) return Fail(kUnavailable, "the stream did not answer a ping");
  if (!call->unreadable.empty()) return Fail(kInternal, call->unreadable);
  const std::string message =
      code == kOk ? "the server ended the stream" : call->status.error_message();
  const bool refused = options_.authorizer->Refused(call->authorization, code, message);
  if (refused && !std::exchange(repeated_, true)) return Open();
  Fail(code, message);
}

void PullStream::Fail(int code, const std::string& message) {
  const std::string error = StatusText(code, message);
  // Keys are replaced, and rights given back, while this process runs.
  const bool may_pass = code == kUnauthenticated && options_.authorizer->has_tokens();
  if (!ReconnectStream(code) && !may_pass) {
    closing_ = true;
    callbacks_.on_fatal(error);
    return;
  }
  std::chrono::milliseconds delay = pace_.Failed(code, Clock::now());
  if (may_pass) delay = std::min(delay, kRefusedDelay);
  reconnect_timer_ = loop_->After(delay, [this] { Open(); });
  callbacks_.on_failure(error);
}

void PullStream::Close() {
  if (closing_) return;
  closing_ = true;
  loop_->Cancel(reconnect_timer_);
  if (!call_) return;
  call_->drain_timer = loop_->After(kDrainTime, [call = call_] { call->context.TryCancel(); });
  if (call_->started) HalfClose(call_);
}

void PullStream::Abort() {
  Close();
  if (call_) call_->context.TryCancel();
}

void PullStream::HalfClose(const std::shared_ptr<Call>& call) {
  if (call->writing || call->half_closed || call->ended) return;
  call->half_closed = true;
  call->writing = true;
  call->stream->WritesDone(loop_->Tag([this, call](bool) {
    call->writing = false;
    if (call->ended) End(call);
  }));
  Read(call);  // until the end of the stream, even if reading is paused
}

void PullStream::SchedulePing(const std::shared_ptr<Call>& call) {
  call->ping_timer = loop_->After(options_.ping_interval, [this, call] {
    if (call->ended || closing_) return;
    Ping(call);
    SchedulePing(call);
  });
}

void PullStream::Ping(const std::shared_ptr<Call>& call) {
  if (call->ended || closing_) return;
  pings_.Pinged(Clock::now());
  LookForStall(call);
  call->ping_due = call->writing;
  if (!call->writing) Write(call, StreamingPullRequest());
}

void PullStream::LookForStall(const std::shared_ptr<Call>& call) {
  loop_->Cancel(call->stall_timer);
  if (call->ended || !call->reading) return;
  const std::optional<Clock::time_point> stalled_at = pings_.StalledAt(call->read_started);
  if (!stalled_at) return;
  const auto now = Clock::now();
  if (now < *stalled_at) {
    call->stall_timer = loop_->After(*stalled_at - now, [this, call] { LookForStall(call); });
    return;
  }
  call->stalled = true;
  call->context.TryCancel();
}

}  // namespace postbox::pubsub

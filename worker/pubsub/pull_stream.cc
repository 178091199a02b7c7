#include "worker/pubsub/pull_stream.h"

#include <algorithm>
#include <utility>

#include "proto/rules/error_class.h"
#include "worker/pubsub/channel.h"

namespace postbox::pubsub {

using google::pubsub::v1::StreamingPullRequest;
using google::pubsub::v1::StreamingPullResponse;
using Clock = EventLoop::Clock;

// One call. Tags hold it alive; flags say which operations are under way.
struct PullStream::Connection {
  grpc::ClientContext context;
  std::unique_ptr<
      grpc::ClientAsyncReaderWriterInterface<StreamingPullRequest, StreamingPullResponse>>
      stream;
  StreamingPullResponse response;
  grpc::Status status;
  bool started = false;
  bool reading = false;
  bool writing = false;
  bool ended = false;  // no new operation but Finish
  bool finishing = false;
  bool half_closed = false;
  bool answered = false;  // any response came
  bool pings_answered = false;
  bool ping_open = false;  // no response since the last ping
  bool checking = false;   // check_timer is set
  bool timed_out = false;
  Clock::time_point read_started;
  Clock::time_point ping_sent;
  EventLoop::TimerId ping_timer;
  EventLoop::TimerId check_timer;
  EventLoop::TimerId drain_timer;
};

PullStream::PullStream(EventLoop* loop, google::pubsub::v1::Subscriber::StubInterface* stub,
                       Options options, Callbacks callbacks)
    : loop_(loop), stub_(stub), options_(std::move(options)), callbacks_(std::move(callbacks)) {}

void PullStream::Start() { Open(); }

void PullStream::Open() {
  auto connection = std::make_shared<Connection>();
  connection_ = connection;
  AddHeaders(&connection->context,
             RouteHeader("subscription", options_.first_request.subscription()),
             options_.quota_project);
  connection->stream =
      stub_->PrepareAsyncStreamingPull(&connection->context, loop_->completion_queue());
  connection->writing = true;  // nothing else may be started before the call is
  connection->stream->StartCall(loop_->Tag([this, connection](bool ok) {
    connection->writing = false;
    if (!ok) return End(connection);
    connection->started = true;
    Write(connection, options_.first_request);
    Read(connection);
    SchedulePing(connection);
    if (closing_) HalfClose(connection);
  }));
}

void PullStream::Read(const std::shared_ptr<Connection>& connection) {
  if ((paused_ && !closing_) || !connection->started || connection->reading || connection->ended) {
    return;
  }
  connection->reading = true;
  connection->read_started = Clock::now();
  connection->stream->Read(&connection->response,
                           loop_->Tag([this, connection](bool ok) { OnRead(connection, ok); }));
}

void PullStream::Write(const std::shared_ptr<Connection>& connection,
                       const StreamingPullRequest& request) {
  connection->writing = true;
  connection->stream->Write(request, loop_->Tag([this, connection](bool) {
    connection->writing = false;
    // A write that failed says that the stream is dead; the read will say so too, after what can
    // still be read. Only it ends the connection: Finish waits for ever while messages are unread.
    if (connection->ended) return End(connection);
    if (closing_) HalfClose(connection);
  }));
}

void PullStream::OnRead(const std::shared_ptr<Connection>& connection, bool ok) {
  connection->reading = false;
  if (!ok) return End(connection);
  const bool first = !connection->answered;
  connection->answered = true;
  if (first) backoff_.Reset();
  if (connection->ping_open && connection->response.received_messages().empty()) {
    connection->pings_answered = true;
  }
  connection->ping_open = false;
  callbacks_.on_response(&connection->response, first);
  connection->response.Clear();
  Read(connection);
}

void PullStream::PauseReading(bool paused) {
  if (paused == paused_) return;
  paused_ = paused;
  if (!paused_ && connection_) Read(connection_);
}

void PullStream::End(const std::shared_ptr<Connection>& connection) {
  connection->ended = true;
  if (connection->writing || connection->finishing) return;
  connection->finishing = true;
  connection->stream->Finish(&connection->status,
                             loop_->Tag([this, connection](bool) { OnFinished(connection); }));
}

void PullStream::OnFinished(const std::shared_ptr<Connection>& connection) {
  loop_->Cancel(connection->ping_timer);
  loop_->Cancel(connection->check_timer);
  loop_->Cancel(connection->drain_timer);
  connection_.reset();
  if (closing_) return;
  int code = connection->status.error_code();
  std::string error = connection->timed_out
                          ? "UNAVAILABLE: the stream did not answer a ping"
                          : StatusText(code, code == kOk ? "the server ended the stream"
                                                         : connection->status.error_message());
  if (!connection->timed_out && !ReconnectStream(code)) {
    closing_ = true;
    callbacks_.on_fatal(error);
    return;
  }
  reconnect_timer_ = loop_->After(backoff_.Next(), [this] { Open(); });
  callbacks_.on_failure(error);
}

void PullStream::Close() {
  if (closing_) return;
  closing_ = true;
  loop_->Cancel(reconnect_timer_);
  if (!connection_) return;
  connection_->drain_timer =
      loop_->After(kDrainTime, [connection = connection_] { connection->context.TryCancel(); });
  if (connection_->started) HalfClose(connection_);
}

void PullStream::Abort() {
  Close();
  if (connection_) connection_->context.TryCancel();
}

void PullStream::HalfClose(const std::shared_ptr<Connection>& connection) {
  if (connection->writing || connection->half_closed || connection->ended) return;
  connection->half_closed = true;
  connection->writing = true;
  connection->stream->WritesDone(loop_->Tag([this, connection](bool) {
    connection->writing = false;
    if (connection->ended) End(connection);
  }));
  Read(connection);  // up to the end of the stream, paused or not
}

void PullStream::SchedulePing(const std::shared_ptr<Connection>& connection) {
  connection->ping_timer = loop_->After(options_.ping_interval, [this, connection] {
    if (connection->ended || closing_) return;
    if (!connection->writing) {
      // Silence counts from the first ping that was not answered.
      if (!connection->ping_open) connection->ping_sent = Clock::now();
      connection->ping_open = true;
      Write(connection, StreamingPullRequest());
      if (connection->pings_answered && !connection->checking) {
        CheckPing(connection, options_.ping_timeout);
      }
    }
    SchedulePing(connection);
  });
}

void PullStream::CheckPing(const std::shared_ptr<Connection>& connection, Clock::duration delay) {
  connection->checking = true;
  connection->check_timer = loop_->After(delay, [this, connection] {
    connection->checking = false;
    if (connection->ended || !connection->ping_open || !connection->reading) return;
    // Nothing could arrive while reading was paused.
    auto silent_at =
        std::max(connection->ping_sent, connection->read_started) + options_.ping_timeout;
    auto now = Clock::now();
    if (now < silent_at) return CheckPing(connection, silent_at - now);
    connection->timed_out = true;
    connection->context.TryCancel();
  });
}

}  // namespace postbox::pubsub

// The StreamingPull stream of a subscriber: opens it, keeps it alive, and opens it again.
//
//     closed --Start/backoff--> opening --> open --ended with an error that passes--> backoff
//                                             \---ended with any other error--------> on_fatal
//
// Each time that the stream is opened is a call.
//   - Every call begins with the full first request and the same client_id.
//   - An empty request, a ping, is sent every ping_interval, and at the beginning of a call as long
//     as it is not known whether the server answers pings (ping_watch.h). If it does, a call is
//     ended when nothing arrives for ping_timeout after a ping. If not, as Google's emulator,
//     silence means nothing, and only gRPC's keepalive ends a silent connection, after 5 minutes.
//     Silence while reading is paused means nothing either, because nothing can arrive then.
//   - The delay until it is opened again grows to 10 s (reconnect_pace.h).
//   - A call waits until there is a token for it. When a token is refused with UNAUTHENTICATED, the
//     credentials are read again, and the stream is opened at once, and then every kRefusedDelay:
//     keys are replaced and given back while this process runs.
//
// For the loop's thread only. It must live until the loop has delivered its tags.

#ifndef POSTBOX_WORKER_PUBSUB_PULL_PULL_STREAM_H_
#define POSTBOX_WORKER_PUBSUB_PULL_PULL_STREAM_H_

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/async_stream.h>
#include <grpcpp/support/byte_buffer.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "google/pubsub/v1/pubsub.grpc.pb.h"
#include "worker/pubsub/auth/authorizer.h"
#include "worker/pubsub/channel.h"
#include "worker/pubsub/event_loop.h"
#include "worker/pubsub/pull/ping_watch.h"
#include "worker/pubsub/pull/pull_wire.h"
#include "worker/pubsub/pull/reconnect_pace.h"

namespace postbox::pubsub {

class PullStream {
 public:
  // Responses come in wire format (pull_wire.h).
  using Stub = RenewedStub<
      grpc::TemplatedGenericStub<google::pubsub::v1::StreamingPullRequest, grpc::ByteBuffer>>;
  struct Options {
    google::pubsub::v1::StreamingPullRequest first_request;
    std::string quota_project;  // empty: that of the credentials
    Authorizer* authorizer;     // lives for longer than the stream
    std::chrono::milliseconds ping_interval;
    std::chrono::milliseconds ping_timeout;
  };
  struct Callbacks {
    // `first`: it is the first response of its call.
    std::function<void(PullResponse, bool first)> on_response;
    std::function<void(const std::string& error)> on_failure;
    std::function<void(const std::string& error)> on_fatal;
    // Messages have come, or a call has ended.
    std::function<void(const CallReport&)> on_call;
  };

  PullStream(EventLoop* loop, Stub* stub, Options options, Callbacks callbacks);

  void Start();
  // While reading is paused, at most the response that is being read already arrives.
  void PauseReading(bool paused);
  // Ends the stream and opens no other. Responses that the server has sent still arrive if they
  // come within kDrainTime.
  void Close();
  // Like Close, but ends the stream at once.
  void Abort();

  static constexpr std::chrono::seconds kDrainTime{1};
  static constexpr std::chrono::milliseconds kRefusedDelay{1000};

 private:
  struct Call;

  void Open();
  void Begin(const Authorization& authorization);
  // Opens the stream again later, or gives up.
  void Fail(int code, const std::string& message);
  void Read(const std::shared_ptr<Call>& call);
  void Write(const std::shared_ptr<Call>& call,
             const google::pubsub::v1::StreamingPullRequest& request);
  void OnRead(const std::shared_ptr<Call>& call, bool ok);
  // Nothing more can be read. Finishes the call as soon as no write is in progress.
  void End(const std::shared_ptr<Call>& call);
  void OnFinished(const std::shared_ptr<Call>& call);
  void HalfClose(const std::shared_ptr<Call>& call);

  void SchedulePing(const std::shared_ptr<Call>& call);
  void Ping(const std::shared_ptr<Call>& call);
  // Ends the call if it has stalled, or looks again when it will have.
  void LookForStall(const std::shared_ptr<Call>& call);

  EventLoop* const loop_;
  Stub* const stub_;
  const Options options_;
  const Callbacks callbacks_;
  ReconnectPace pace_;
  PingWatch pings_;  // of call_
  bool paused_ = false;
  bool closing_ = false;
  bool repeated_ = false;  // with another token, since the last answer
  std::shared_ptr<Call> call_;
  EventLoop::TimerId reconnect_timer_;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PULL_PULL_STREAM_H_

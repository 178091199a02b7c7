// The StreamingPull stream of a subscriber: opens it, keeps it alive, opens it again.
//
//     closed --Start/backoff--> opening --> open --ended: code that passes--> backoff
//                                             \---ended: code that a person must mend--> on_fatal
//
//   - Every connection begins with the full first request and the same client_id.
//   - An empty request goes out every ping_interval. A server that answers pings says so with a
//     response without messages; from the first such answer on, the connection is given up when
//     nothing at all arrives for ping_timeout after a ping (Google's emulator never answers, so
//     silence means nothing before). While reading is paused nothing can arrive and nothing is
//     concluded.
//   - The backoff begins anew with the first response of a connection.
//
// The loop's thread only. Must live until the loop has delivered its tags.

#ifndef POSTBOX_WORKER_PUBSUB_PULL_STREAM_H_
#define POSTBOX_WORKER_PUBSUB_PULL_STREAM_H_

#include <grpcpp/client_context.h>
#include <grpcpp/support/async_stream.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "google/pubsub/v1/pubsub.grpc.pb.h"
#include "proto/rules/backoff.h"
#include "worker/pubsub/event_loop.h"

namespace postbox::pubsub {

class PullStream {
 public:
  struct Options {
    google::pubsub::v1::StreamingPullRequest first_request;
    std::string quota_project;
    std::chrono::milliseconds ping_interval;
    std::chrono::milliseconds ping_timeout;
  };
  struct Callbacks {
    // May take the response apart. `first`: the first of its connection.
    std::function<void(google::pubsub::v1::StreamingPullResponse*, bool first)> on_response;
    std::function<void(const std::string& error)> on_failure;
    std::function<void(const std::string& error)> on_fatal;
  };

  PullStream(EventLoop* loop, google::pubsub::v1::Subscriber::StubInterface* stub, Options options,
             Callbacks callbacks);

  void Start();
  // While paused, at most the one response that is being read already still arrives.
  void PauseReading(bool paused);
  // Ends the stream and opens no other. What the server has sent by then still arrives, as far as
  // it comes within kDrainTime.
  void Close();
  // Close without that.
  void Abort();

  static constexpr std::chrono::seconds kDrainTime{1};

 private:
  struct Connection;

  void Open();
  void Read(const std::shared_ptr<Connection>& connection);
  void Write(const std::shared_ptr<Connection>& connection,
             const google::pubsub::v1::StreamingPullRequest& request);
  void OnRead(const std::shared_ptr<Connection>& connection, bool ok);
  // Nothing more can be read: finishes the call, once no write is under way.
  void End(const std::shared_ptr<Connection>& connection);
  void OnFinished(const std::shared_ptr<Connection>& connection);
  void HalfClose(const std::shared_ptr<Connection>& connection);

  void SchedulePing(const std::shared_ptr<Connection>& connection);
  void CheckPing(const std::shared_ptr<Connection>& connection, EventLoop::Clock::duration delay);

  EventLoop* const loop_;
  google::pubsub::v1::Subscriber::StubInterface* const stub_;
  const Options options_;
  const Callbacks callbacks_;
  Backoff backoff_{kReconnectBackoff};
  bool paused_ = false;
  bool closing_ = false;
  std::shared_ptr<Connection> connection_;
  EventLoop::TimerId reconnect_timer_;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PULL_STREAM_H_

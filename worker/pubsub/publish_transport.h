// Sends publish requests over gRPC and passes the answers on. It runs on the loop's thread.
//
// A request is encoded directly into the buffer that gRPC sends (message_wire.h), and sent through
// a generic stub. Every call has a deadline; Abort() ends a call early. The answer comes exactly
// once, never inside Send() or Abort().
//
// The deadlines are kept here, with one timer for all calls. A deadline of gRPC would cost both
// sides a timer and a header for each call. A call is cancelled at most 0.1 s after its deadline.

#ifndef POSTBOX_WORKER_PUBSUB_PUBLISH_TRANSPORT_H_
#define POSTBOX_WORKER_PUBSUB_PUBLISH_TRANSPORT_H_

#include <grpcpp/generic/generic_stub.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "worker/pubsub/channel.h"
#include "worker/pubsub/event_loop.h"
#include "worker/pubsub/publish_scheduler.h"

namespace postbox::pubsub {

class PublishTransport {
 public:
  using OnResponse = std::function<void(std::uint64_t request_id, PublishScheduler::Response)>;

  PublishTransport(EventLoop* loop, Endpoint endpoint, Credentials credentials,
                   std::string quota_project, OnResponse on_response);
  ~PublishTransport();

  PublishTransport(const PublishTransport&) = delete;
  PublishTransport& operator=(const PublishTransport&) = delete;

  void Send(const PublishScheduler::Request& request);
  void Abort(std::uint64_t request_id);
  // Nothing may be in flight on it. The next request to it opens it again.
  void CloseChannel(int channel);

 private:
  struct Call;

  void Finished(std::uint64_t request_id);
  // Cancels the calls whose deadline is over, every 0.1 s as long as there are calls.
  void Watch();

  grpc::GenericStub* Stub(int channel);

  EventLoop* const loop_;
  const Endpoint endpoint_;
  const Credentials credentials_;
  const std::string quota_project_;
  const OnResponse on_response_;
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs_;  // by channel; null: closed
  std::unordered_map<std::uint64_t, std::unique_ptr<Call>> calls_;
  bool watching_ = false;   // a timer is set
  std::string last_topic_;  // of the last request, and its header
  std::string last_route_;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PUBLISH_TRANSPORT_H_

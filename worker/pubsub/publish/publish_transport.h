// Sends publish requests over gRPC and passes the answers on. It runs on the loop's thread.
//
// A request is encoded directly into the buffer that gRPC sends (message_wire.h), and sent through
// a generic stub. Every call has a deadline; Abort() ends a call early. The answer comes exactly
// once, never inside Send() or Abort().
//
// A call waits here until there is a token for it. When Pub/Sub refuses a token with
// UNAUTHENTICATED, the credentials are read again and the call is repeated once, so that a key that
// was replaced and revoked is not noticed.
//
// The deadlines are kept here, with one timer for all calls. A deadline of gRPC would cost both
// sides a timer and a header for each call. A call is cancelled at most 0.1 s after its deadline.
//
// A request with messages of sampled traces has a span (traced_request.h).

#ifndef POSTBOX_WORKER_PUBSUB_PUBLISH_PUBLISH_TRANSPORT_H_
#define POSTBOX_WORKER_PUBSUB_PUBLISH_PUBLISH_TRANSPORT_H_

#include <grpcpp/generic/generic_stub.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "worker/pubsub/auth/authorizer.h"
#include "worker/pubsub/auth/credentials.h"
#include "worker/pubsub/channel.h"
#include "worker/pubsub/event_loop.h"
#include "worker/pubsub/publish/publish_scheduler.h"
#include "worker/pubsub/publish/publisher.h"

namespace postbox::pubsub {

class PublishTransport {
 public:
  using OnResponse = std::function<void(std::uint64_t request_id, PublishScheduler::Response)>;

  PublishTransport(EventLoop* loop, const PublisherOptions& options, Credentials credentials,
                   OnResponse on_response);
  ~PublishTransport();

  PublishTransport(const PublishTransport&) = delete;
  PublishTransport& operator=(const PublishTransport&) = delete;

  void Send(const PublishHost::Request& request);
  void Abort(std::uint64_t request_id);
  // Nothing may be in flight on it. The next request to it opens it again.
  void CloseChannel(int channel);

  CredentialState Credential() const { return authorizer_.State(); }  // any thread

 private:
  struct Call;

  // Starts the call, or ends it if there is no token for it.
  void Begin(std::uint64_t request_id, const Authorization& authorization);
  // Ends a call that was not begun.
  void EndUnsent(std::uint64_t request_id, Call* call, int code, const std::string& message);
  void Finished(std::uint64_t request_id);
  // Cancels the calls whose deadline is over, every 0.1 s as long as there are calls.
  void Watch();

  grpc::GenericStub* Stub(int channel);

  EventLoop* const loop_;
  const Endpoint endpoint_;
  const std::shared_ptr<grpc::ChannelCredentials> channel_credentials_;
  const std::string quota_project_;
  const bool compression_;
  const std::shared_ptr<SpanSink> spans_;  // null: there are no traces
  const OnResponse on_response_;
  std::vector<std::unique_ptr<RenewedStub<grpc::GenericStub>>> stubs_;  // by channel; null: closed
  std::unordered_map<std::uint64_t, std::unique_ptr<Call>> calls_;
  bool watching_ = false;   // a timer is set
  std::string last_topic_;  // of the last request, and its header
  std::shared_ptr<const std::string> last_route_;
  Authorizer authorizer_;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PUBLISH_PUBLISH_TRANSPORT_H_

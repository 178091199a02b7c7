// Channels to Pub/Sub, and the headers that every call carries.
//
// All functions are for the event loop's thread, because they call gRPC.

#ifndef POSTBOX_WORKER_PUBSUB_CHANNEL_H_
#define POSTBOX_WORKER_PUBSUB_CHANNEL_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/security/credentials.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "proto/rules/endpoint.h"

namespace postbox::pubsub {

// Channels with different indexes have separate connections; gRPC shares a connection between equal
// channels. A channel connects when its first call starts. Over TLS it leads through the proxy that
// the environment names (proto/rules/proxy.h). If that cannot be used, it leads nowhere, and calls
// fail with UNAVAILABLE and the reason.
std::shared_ptr<grpc::Channel> MakeChannel(const Endpoint& endpoint,
                                           std::shared_ptr<grpc::ChannelCredentials> credentials,
                                           int index);

// The stub of a channel, which is replaced while it cannot connect. When a name cannot be resolved,
// gRPC looks it up again at growing intervals, of up to 2 minutes, and a broker whose container
// starts again has no name meanwhile.
template <class Stub>
class RenewedStub {
 public:
  RenewedStub(Endpoint endpoint, std::shared_ptr<grpc::ChannelCredentials> credentials, int index)
      : endpoint_(std::move(endpoint)), credentials_(std::move(credentials)), index_(index) {}

  // For one call: the next one may go over another channel.
  Stub* Get() {
    const auto now = std::chrono::steady_clock::now();
    if (stub_ == nullptr || (now >= renew_at_ && channel_->GetState(/*try_to_connect=*/false) ==
                                                     GRPC_CHANNEL_TRANSIENT_FAILURE)) {
      channel_ = MakeChannel(endpoint_, credentials_, index_);
      stub_ = std::make_unique<Stub>(channel_);
      renew_at_ = now + kChannelAge;
    }
    return stub_.get();
  }

 private:
  static constexpr std::chrono::seconds kChannelAge{5};

  const Endpoint endpoint_;
  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  const int index_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<Stub> stub_;
  std::chrono::steady_clock::time_point renew_at_{};
};

// The value of x-goog-request-params, which names the resource of a call: `field`=`value`, with the
// value percent-encoded.
std::string RouteHeader(std::string_view field, std::string_view value);

// Adds x-goog-request-params (`route`, made by RouteHeader()), x-goog-api-client, and, if they are
// not empty, x-goog-user-project, the project that is charged, and `authorization`.
void AddHeaders(grpc::ClientContext* context, const std::string& route,
                const std::string& quota_project, const std::string& authorization);

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_CHANNEL_H_

// Channels to Pub/Sub, and the headers that every call carries.
//
// All functions are for the event loop's thread, because they call gRPC.

#ifndef POSTBOX_WORKER_PUBSUB_CHANNEL_H_
#define POSTBOX_WORKER_PUBSUB_CHANNEL_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/security/credentials.h>

#include <memory>
#include <string>
#include <string_view>

#include "proto/rules/endpoint.h"

namespace postbox::pubsub {

// Channels with different indexes have separate connections; gRPC shares a connection between equal
// channels. A channel connects when its first call starts.
std::shared_ptr<grpc::Channel> MakeChannel(const Endpoint& endpoint,
                                           std::shared_ptr<grpc::ChannelCredentials> credentials,
                                           int index);

// The value of x-goog-request-params, which names the resource of a call: `field`=`value`, with the
// value percent-encoded.
std::string RouteHeader(std::string_view field, std::string_view value);

// Adds x-goog-request-params (`route`, made by RouteHeader()), x-goog-api-client, and, if they are
// not empty, x-goog-user-project, the project that is charged, and `authorization`.
void AddHeaders(grpc::ClientContext* context, const std::string& route,
                const std::string& quota_project, const std::string& authorization);

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_CHANNEL_H_

// Channels to Pub/Sub, and the headers that every call carries.
//
// All functions are for the event loop's thread, because they call gRPC.

#ifndef POSTBOX_WORKER_PUBSUB_CHANNEL_H_
#define POSTBOX_WORKER_PUBSUB_CHANNEL_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <memory>
#include <string>
#include <string_view>

#include "proto/rules/endpoint.h"
#include "worker/pubsub/credentials.h"

namespace postbox::pubsub {

// Channels with different indexes have separate connections; gRPC shares a connection between equal
// channels. A channel connects when its first call starts.
std::shared_ptr<grpc::Channel> MakeChannel(const Endpoint& endpoint, const Credentials& credentials,
                                           int index);

// The value of x-goog-request-params, which names the resource of a call: `field`=`value`, with the
// value percent-encoded.
std::string RouteHeader(std::string_view field, std::string_view value);

// Adds x-goog-request-params (`route`, made by RouteHeader()), x-goog-api-client, and, if
// `quota_project` is not empty, x-goog-user-project: the project that is charged.
void AddHeaders(grpc::ClientContext* context, const std::string& route,
                const std::string& quota_project);

std::string UrlEncode(std::string_view text);

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_CHANNEL_H_

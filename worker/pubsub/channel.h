// Channels to Pub/Sub, and the headers that every call carries.
//
// All of it is for the loop's thread.

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

// Channels with different indexes have connections of their own; gRPC would share one between equal
// channels. It connects when the first call starts.
std::shared_ptr<grpc::Channel> MakeChannel(const Endpoint& endpoint, const Credentials& credentials,
                                           int index);

// The value of x-goog-request-params, which says what resource a call is for: `field`=`value`,
// url-encoded.
std::string RouteHeader(std::string_view field, std::string_view value);

// x-goog-request-params (`route`, of RouteHeader()), x-goog-user-project (if not empty: who pays),
// x-goog-api-client.
void AddHeaders(grpc::ClientContext* context, const std::string& route,
                const std::string& quota_project);

std::string UrlEncode(std::string_view text);

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_CHANNEL_H_

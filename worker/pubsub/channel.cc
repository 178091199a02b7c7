#include "worker/pubsub/channel.h"

#include <grpc/grpc.h>
#include <grpcpp/grpcpp.h>

#include "proto/rules/limits.h"
#include "proto/rules/url_encode.h"

namespace postbox::pubsub {

namespace {

constexpr char kUserAgent[] = "postbox/" POSTBOX_VERSION;

}  // namespace

std::shared_ptr<grpc::Channel> MakeChannel(const Endpoint& endpoint,
                                           std::shared_ptr<grpc::ChannelCredentials> credentials,
                                           int index) {
  grpc::ChannelArguments arguments;
  arguments.SetInt("postbox.channel_index", index);
  arguments.SetUserAgentPrefix(kUserAgent);
  arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  arguments.SetMaxReceiveMessageSize(kMaxReceiveBytes);
  arguments.SetMaxSendMessageSize(-1);
  // Postbox retries requests itself, in the order of each key. For retries of its own gRPC would
  // keep a copy of every request.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  // The service allows one ping every 5 minutes. The timeout matters more: gRPC uses it as
  // TCP_USER_TIMEOUT. So a connection whose peer is gone fails 20 s after a send, and not after the
  // kernel's default of about 15 minutes.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 300'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  // By default the delay between two attempts to connect grows to 2 minutes. Calls fail at once
  // meanwhile, so publishers would notice only then that a broker is back.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'500);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                   5'000);  // also the time that one attempt to connect may take
  // When connecting fails, the name is looked up again: the broker may have another address. By
  // default not within 30 s of the last time, which may be that of the end of the connection.
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 500);
  // A plain-text endpoint is an emulator in the local network. The proxy of the environment
  // (http_proxy) does not lead there.
  if (endpoint.plaintext) arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(endpoint.address, credentials, arguments);
}

std::string RouteHeader(std::string_view field, std::string_view value) {
  return std::string(field) + "=" + UrlEncode(value);
}

void AddHeaders(grpc::ClientContext* context, const std::string& route,
                const std::string& quota_project, const std::string& authorization) {
  static const std::string kApiClient =
      "gl-cpp/" + std::to_string(__cplusplus) + " " + kUserAgent + " grpc/" + grpc::Version();
  context->AddMetadata("x-goog-request-params", route);
  context->AddMetadata("x-goog-api-client", kApiClient);
  if (!quota_project.empty()) context->AddMetadata("x-goog-user-project", quota_project);
  if (!authorization.empty()) context->AddMetadata("authorization", authorization);
}

}  // namespace postbox::pubsub

#include "worker/pubsub/channel.h"

#include <grpc/grpc.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/client_interceptor.h>

#include <cstdlib>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "proto/rules/limits.h"
#include "proto/rules/proxy.h"
#include "proto/rules/url_encode.h"

namespace postbox::pubsub {

namespace {

constexpr char kUserAgent[] = "postbox/" POSTBOX_VERSION;
// Arguments by which gRPC itself tells a connection that its peer is a proxy. Its own look at the
// environment knows other variables than libcurl does, and goes past a proxy that it cannot parse.
constexpr char kConnectServer[] = "grpc.http_connect_server";
constexpr char kConnectHeaders[] = "grpc.http_connect_headers";

namespace hooks = grpc::experimental;

// What the caller gets instead of the status with which a call has ended.
using RewriteStatus = std::function<grpc::Status(const grpc::Status&)>;

class StatusRewriter final : public hooks::Interceptor {
 public:
  explicit StatusRewriter(const RewriteStatus& rewrite) : rewrite_(rewrite) {}
  void Intercept(hooks::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(hooks::InterceptionHookPoints::POST_RECV_STATUS)) {
      grpc::Status* const status = methods->GetRecvStatus();
      *status = rewrite_(*status);
    }
    methods->Proceed();
  }

 private:
  const RewriteStatus& rewrite_;
};

class StatusRewriterFactory final : public hooks::ClientInterceptorFactoryInterface {
 public:
  explicit StatusRewriterFactory(RewriteStatus rewrite) : rewrite_(std::move(rewrite)) {}
  hooks::Interceptor* CreateClientInterceptor(hooks::ClientRpcInfo* /*info*/) override {
    return new StatusRewriter(rewrite_);
  }

 private:
  const RewriteStatus rewrite_;
};

std::shared_ptr<grpc::Channel> MakeRewriting(
    const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
    const grpc::ChannelArguments& arguments, RewriteStatus rewrite) {
  std::vector<std::unique_ptr<hooks::ClientInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(std::make_unique<StatusRewriterFactory>(std::move(rewrite)));
  return hooks::CreateCustomChannelWithInterceptors(address, credentials, arguments,
                                                    std::move(interceptors));
}

// A tunnel through the proxy, as gRPC makes it for one that it finds by itself.
std::shared_ptr<grpc::Channel> MakeTunnel(
    const Proxy& proxy, const std::string& server,
    const std::shared_ptr<grpc::ChannelCredentials>& credentials,
    grpc::ChannelArguments* arguments) {
  arguments->SetString(GRPC_ARG_DEFAULT_AUTHORITY, server);
  arguments->SetString(kConnectServer, server);
  if (!proxy.user_info.empty()) {
    arguments->SetString(kConnectHeaders,
                         "Proxy-Authorization:Basic " + absl::Base64Escape(proxy.user_info));
  }
  // The error of a connection that fails names the proxy.
  return MakeRewriting(proxy.address, credentials, *arguments,
                       [name = proxy.Name()](const grpc::Status& status) {
                         if (status.error_code() != grpc::StatusCode::UNAVAILABLE) return status;
                         return grpc::Status(status.error_code(),
                                             status.error_message() + "; through the proxy " + name,
                                             status.error_details());
                       });
}

// Without credentials a channel connects to nothing: each of its calls fails.
std::shared_ptr<grpc::Channel> MakeDeadEnd(const std::string& error) {
  return MakeRewriting("", nullptr, grpc::ChannelArguments(),
                       [error](const grpc::Status& /*status*/) {
                         return grpc::Status(grpc::StatusCode::UNAVAILABLE, error);
                       });
}

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
  // Postbox retries requests itself, in the order of each key. For its own retries gRPC would
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
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  Proxy proxy;
  std::string error;
  if (!endpoint.plaintext && !FindProxy(std::getenv, endpoint.address, &proxy, &error)) {
    return MakeDeadEnd(error);
  }
  if (proxy.used()) return MakeTunnel(proxy, endpoint.address, credentials, &arguments);
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

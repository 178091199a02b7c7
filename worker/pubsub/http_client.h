// Single HTTP requests to the servers that issue tokens.
//
// A request has a deadline, follows no redirect, and takes at most kMostBytes of an answer. TLS
// trusts what gRPC trusts: the file that GRPC_DEFAULT_SSL_ROOTS_FILE_PATH names, or else the
// authorities of the system. https:// goes through the proxy that the environment names
// (proto/rules/proxy.h). What goes to http:// is for this machine or the link-local metadata server
// (CheckTokenUrl), so a proxy never sees it.
#ifndef POSTBOX_WORKER_PUBSUB_HTTP_CLIENT_H_
#define POSTBOX_WORKER_PUBSUB_HTTP_CLIENT_H_

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace postbox::pubsub {

struct HttpRequest {
  std::string url;
  std::vector<std::pair<std::string, std::string>> headers{};
  std::optional<std::string> body{};  // POST if there is one, else GET
};

struct HttpResponse {
  int status = 0;
  std::string body;
  std::string metadata_flavor;  // the header Metadata-Flavor
};

class HttpClient {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{1} << 20;

  HttpClient();
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // One thread, in which every signal is blocked. Nothing and the reason in `error` if there is no
  // answer in time. The reason has the host in it, nothing of the request.
  std::optional<HttpResponse> Send(const HttpRequest& request, std::chrono::milliseconds timeout,
                                   std::string* error);

  // Any thread. Send() returns at once, now and in future.
  void Stop();

 private:
  struct Impl;
  Impl* const impl_;
};

// Why a token may not be asked for at this address; empty: it may. It must be https://, or http://
// on this machine or on the metadata server: what goes there is a secret.
std::string CheckTokenUrl(const std::string& url);

// host:port or host of the metadata server, as Google's libraries find it: GCE_METADATA_HOST in the
// environment, or metadata.google.internal.
std::string MetadataHost();

// The host of a URL that CheckTokenUrl() lets pass.
std::string HostOf(const std::string& url);

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_HTTP_CLIENT_H_

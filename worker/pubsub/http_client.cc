#include "worker/pubsub/http_client.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <strings.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "proto/rules/proxy.h"
#include "worker/pubsub/release_with.h"

namespace postbox::pubsub {

namespace {

constexpr char kRootsVariable[] = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH";
constexpr char kMetadataVariable[] = "GCE_METADATA_HOST";
constexpr char kMetadataName[] = "metadata.google.internal";
constexpr char kMetadataAddress[] = "169.254.169.254";
constexpr char kFlavorHeader[] = "metadata-flavor:";
constexpr long kConnectTimeoutMs = 5000;
constexpr int kLongestPollMs = 500;

using Easy = std::unique_ptr<CURL, ReleaseWith<curl_easy_cleanup>>;
using HeaderList = std::unique_ptr<curl_slist, ReleaseWith<curl_slist_free_all>>;
using Url = std::unique_ptr<CURLU, ReleaseWith<curl_url_cleanup>>;

// Empty if the URL has no such part.
std::string Part(const Url& url, CURLUPart part) {
  char* text = nullptr;
  if (curl_url_get(url.get(), part, &text, 0) != CURLUE_OK) return "";
  std::string result = text;
  curl_free(text);
  return result;
}

// No URL if the text is none.
Url Parse(const std::string& text) {
  Url url(curl_url());
  if (url == nullptr || curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK) {
    return nullptr;
  }
  return url;
}

bool IsLoopback(const std::string& host) {
  if (host == "localhost" || host == "[::1]") return true;
  in_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1 && (ntohl(address.s_addr) >> 24) == 127;
}

bool IsMetadataHost(const Url& url) {
  const std::string host = Part(url, CURLUPART_HOST);
  if (host == kMetadataName || host == kMetadataAddress) return true;
  const std::string port = Part(url, CURLUPART_PORT);
  const std::string given = MetadataHost();
  return given == host || given == host + ":" + port;
}

size_t TakeBody(char* data, size_t /*size*/, size_t count, void* body) {
  auto* const text = static_cast<std::string*>(body);
  if (text->size() + count > HttpClient::kMostBytes) return 0;
  text->append(data, count);
  return count;
}

size_t TakeHeader(char* data, size_t /*size*/, size_t count, void* flavor) {
  const std::string line(data, count);
  if (strncasecmp(line.c_str(), kFlavorHeader, sizeof kFlavorHeader - 1) != 0) return count;
  const size_t begin = line.find_first_not_of(" \t", sizeof kFlavorHeader - 1);
  const size_t end = line.find_last_not_of(" \t\r\n");
  if (begin != std::string::npos && end != std::string::npos && end >= begin) {
    *static_cast<std::string*>(flavor) = line.substr(begin, end - begin + 1);
  }
  return count;
}

HeaderList MakeHeaders(const HttpRequest& request) {
  curl_slist* list = nullptr;
  for (const auto& [name, value] : request.headers) {
    if (curl_slist* longer = curl_slist_append(list, (name + ": " + value).c_str())) list = longer;
  }
  return HeaderList(list);
}

// Of a URL of https://. False and the reason in `error` if it cannot be used.
bool FindProxyOf(const Url& url, Proxy* proxy, std::string* error) {
  if (Part(url, CURLUPART_SCHEME) != "https") return true;
  const std::string port = Part(url, CURLUPART_PORT);
  return FindProxy(std::getenv, Part(url, CURLUPART_HOST) + ":" + (port.empty() ? "443" : port),
                   proxy, error);
}

void SetProxy(CURL* easy, const Proxy& proxy) {
  // Set, even if to nothing, they keep libcurl from the environment.
  curl_easy_setopt(easy, CURLOPT_NOPROXY, "");
  curl_easy_setopt(easy, CURLOPT_PROXY, proxy.used() ? ("http://" + proxy.address).c_str() : "");
  if (proxy.user_info.empty()) return;
  const size_t colon = proxy.user_info.find(':');
  curl_easy_setopt(easy, CURLOPT_PROXYUSERNAME, proxy.user_info.substr(0, colon).c_str());
  curl_easy_setopt(easy, CURLOPT_PROXYPASSWORD,
                   colon == std::string::npos ? "" : proxy.user_info.substr(colon + 1).c_str());
}

void SetOptions(CURL* easy, const HttpRequest& request, const HeaderList& headers,
                HttpResponse* response) {
  curl_easy_setopt(easy, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, kConnectTimeoutMs);
  // Tokens are asked for once an hour. The server may have another address since the last time.
  curl_easy_setopt(easy, CURLOPT_DNS_CACHE_TIMEOUT, 0L);
  curl_easy_setopt(easy, CURLOPT_USERAGENT, "postbox/" POSTBOX_VERSION);
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &TakeBody);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, &response->body);
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, &TakeHeader);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, &response->metadata_flavor);
#if LIBCURL_VERSION_NUM >= 0x075500
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
#else
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
#endif
#if LIBCURL_VERSION_NUM >= 0x075700
  // A resolver that does not answer would hold up the end of the process.
  curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
#endif
  const char* roots = std::getenv(kRootsVariable);
  if (roots != nullptr && *roots != '\0') curl_easy_setopt(easy, CURLOPT_CAINFO, roots);
  if (!request.body) return;
  curl_easy_setopt(easy, CURLOPT_POST, 1L);
  curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request.body->data());
  curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE, static_cast<long>(request.body->size()));
}

void InitializeOnce() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

}  // namespace

struct HttpClient::Impl {
  std::atomic<bool> stopped = false;
  CURLM* multi = nullptr;

  // Nothing if it was stopped.
  std::optional<CURLcode> Perform(CURL* easy) const {
    int running = 1;
    while (!stopped) {
      if (curl_multi_perform(multi, &running) != CURLM_OK) return CURLE_FAILED_INIT;
      int left = 0;
      while (const CURLMsg* message = curl_multi_info_read(multi, &left)) {
        if (message->msg == CURLMSG_DONE && message->easy_handle == easy)
          return message->data.result;
      }
      if (running == 0) return CURLE_FAILED_INIT;
      if (curl_multi_poll(multi, nullptr, 0, kLongestPollMs, nullptr) != CURLM_OK) {
        return CURLE_FAILED_INIT;
      }
    }
    return std::nullopt;
  }
};

HttpClient::HttpClient() : impl_(new Impl) {
  InitializeOnce();
  impl_->multi = curl_multi_init();
}

HttpClient::~HttpClient() {
  curl_multi_cleanup(impl_->multi);
  delete impl_;
}

void HttpClient::Stop() {
  impl_->stopped = true;
  if (impl_->multi != nullptr) curl_multi_wakeup(impl_->multi);
}

std::optional<HttpResponse> HttpClient::Send(const HttpRequest& request,
                                             std::chrono::milliseconds timeout,
                                             std::string* error) {
  const Easy easy(curl_easy_init());
  const Url url = Parse(request.url);
  if (impl_->multi == nullptr || easy == nullptr || url == nullptr) {
    *error = url == nullptr ? "not a URL" : "out of memory";
    return std::nullopt;
  }
  Proxy proxy;
  if (!FindProxyOf(url, &proxy, error)) return std::nullopt;
  HttpResponse response;
  const HeaderList headers = MakeHeaders(request);
  SetOptions(easy.get(), request, headers, &response);
  SetProxy(easy.get(), proxy);
  curl_easy_setopt(easy.get(), CURLOPT_TIMEOUT_MS, static_cast<long>(timeout.count()));
  curl_multi_add_handle(impl_->multi, easy.get());
  const std::optional<CURLcode> result = impl_->Perform(easy.get());
  long status = 0;
  long tunnel = 0;
  curl_easy_getinfo(easy.get(), CURLINFO_RESPONSE_CODE, &status);
  curl_easy_getinfo(easy.get(), CURLINFO_HTTP_CONNECTCODE, &tunnel);
  curl_multi_remove_handle(impl_->multi, easy.get());
  if (result == CURLE_OK) {
    response.status = static_cast<int>(status);
    return response;
  }
  *error = Part(url, CURLUPART_HOST) + ": ";
  if (!result) {
    *error += "interrupted";
  } else if (*result == CURLE_WRITE_ERROR) {
    *error += "the answer is longer than " + std::to_string(kMostBytes) + " bytes";
  } else if (tunnel >= 300) {
    *error += "HTTP proxy returned response code " + std::to_string(tunnel);
  } else {
    *error += curl_easy_strerror(*result);
  }
  if (result && proxy.used()) *error += "; through the proxy " + proxy.Name();
  return std::nullopt;
}

std::string CheckTokenUrl(const std::string& text) {
  const Url url = Parse(text);
  if (url == nullptr || Part(url, CURLUPART_HOST).empty()) return "is not a URL";
  if (!Part(url, CURLUPART_USER).empty() || !Part(url, CURLUPART_PASSWORD).empty()) {
    return "has a user name or a password";
  }
  const std::string scheme = Part(url, CURLUPART_SCHEME);
  if (scheme == "https") return "";
  if (scheme != "http") return "is neither https:// nor http://";
  if (IsLoopback(Part(url, CURLUPART_HOST)) || IsMetadataHost(url)) return "";
  return "is http:// to another machine; https:// is needed";
}

std::string MetadataHost() {
  const char* host = std::getenv(kMetadataVariable);
  return host != nullptr && *host != '\0' ? host : kMetadataName;
}

std::string HostOf(const std::string& url) {
  const Url parsed = Parse(url);
  return parsed == nullptr ? "" : Part(parsed, CURLUPART_HOST);
}

}  // namespace postbox::pubsub

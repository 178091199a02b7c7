#include "worker/pubsub/auth/credentials.h"

#include <cstdlib>
#include <utility>

#include "proto/rules/proxy.h"

namespace postbox::pubsub {

namespace {

constexpr char kService[] = "pubsub.googleapis.com";

}  // namespace

std::optional<Credentials> MakeCredentials(const Endpoint& endpoint, const CredentialSpec& spec,
                                           std::string* error) {
  if (endpoint.plaintext) return Credentials{grpc::InsecureChannelCredentials(), nullptr, ""};
  Proxy proxy;
  if (!FindProxy(std::getenv, endpoint.address, &proxy, error)) return std::nullopt;
  Credentials credentials{grpc::SslCredentials({}), nullptr, ""};
  credentials.tokens =
      TokenSource::Start(spec, AudienceOf(endpoint), &credentials.quota_project, error);
  if (credentials.tokens == nullptr) return std::nullopt;
  return credentials;
}

std::optional<Credentials> MakeUncheckedCredentials(const Endpoint& endpoint,
                                                    const CredentialSpec& spec,
                                                    std::string* error) {
  if (endpoint.plaintext) return Credentials{grpc::InsecureChannelCredentials(), nullptr, ""};
  Credentials credentials{grpc::SslCredentials({}), nullptr, ""};
  credentials.tokens = TokenSource::StartUnchecked(spec, AudienceOf(endpoint), error);
  if (credentials.tokens == nullptr) return std::nullopt;
  return credentials;
}

std::string AudienceOf(const Endpoint& endpoint) {
  const std::string host = endpoint.address.substr(0, endpoint.address.rfind(':'));
  const bool is_google = host.ends_with(kService);  // us-east1-pubsub.googleapis.com, too
  return "https://" + (is_google ? kService : host) + "/";
}

}  // namespace postbox::pubsub

// One access token for one set of credentials.
//
//   service_account               signed here, for the service itself (no exchange)
//   authorized_user               refresh token -> token endpoint
//   external_account              token of another provider -> security token service, and then,
//                                 if the credentials say so, as impersonated_service_account
//   impersonated_service_account  token of the source -> generateAccessToken
//   metadata_server               asked for the account of the machine
//
// Errors name the server and say what it has answered: `error` and `error_description`, cut, and
// without anything that looks like a token.
#ifndef POSTBOX_WORKER_PUBSUB_AUTH_TOKEN_REQUEST_H_
#define POSTBOX_WORKER_PUBSUB_AUTH_TOKEN_REQUEST_H_

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/pubsub/auth/credentials_file.h"
#include "worker/pubsub/http_client.h"

namespace postbox::pubsub {

struct AccessToken {
  std::string token;
  std::chrono::system_clock::time_point expires;
  std::string identity;  // of whom; empty if it is not known
};

struct TokenError {
  std::string text;
  bool passes = false;  // it may go by itself: the network, or a server that has trouble
};

class TokenRequest {
 public:
  static constexpr std::chrono::seconds kTimeout{10};  // of each HTTP request

  // `audience`: the service that a self-signed token is for, as https://HOST/.
  TokenRequest(HttpClient* http, std::string audience)
      : http_(http), audience_(std::move(audience)) {}

  // Nothing and the reason in `error` if there is none. Waits for the network.
  std::optional<AccessToken> Fetch(const CredentialsFile& file, TokenError* error);

 private:
  std::optional<AccessToken> Sign(const ServiceAccountKey& key, const std::string& scope,
                                  TokenError* error);
  std::optional<AccessToken> Refresh(const AuthorizedUser& user, TokenError* error);
  std::optional<AccessToken> Exchange(const ExternalAccount& account, const std::string& scope,
                                      TokenError* error);
  std::optional<AccessToken> AskMetadataServer(TokenError* error);
  std::optional<AccessToken> Impersonate(const Impersonation& impersonation,
                                         const std::string& source_token, TokenError* error);
  // For calls of iamcredentials.googleapis.com.
  std::optional<AccessToken> SourceToken(const CredentialsFile& source, TokenError* error);
  std::optional<std::string> SubjectToken(const SubjectTokenSource& source, TokenError* error);
  // Sends it, and takes an answer of 200 only. `secrets`: texts that the error must not have in it.
  std::optional<std::string> Send(const HttpRequest& request,
                                  const std::vector<std::string>& secrets, TokenError* error,
                                  std::chrono::milliseconds timeout = kTimeout);

  HttpClient* const http_;
  const std::string audience_;
};

// Whether there is a metadata server. Waits for a second or two at most.
bool FindsMetadataServer(HttpClient* http);

// What a server says, for people: cut, in one line, and without `secrets` and what looks like one.
std::string WithoutSecrets(std::string_view text, std::vector<std::string> secrets);

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_AUTH_TOKEN_REQUEST_H_

// The servers that Google's clients have their tokens from, as one HTTP server for tests:
//
//   POST /token                            OAuth: the grants jwt-bearer and refresh_token
//   POST /revoke                           OAuth: ends a token (RFC 7009)
//   POST /v1/token                         security token service: token exchange (RFC 8693)
//   POST /v1/projects/-/serviceAccounts/EMAIL:generateAccessToken     IAM Credentials
//   GET  /computeMetadata/v1/...           metadata server: token, email, project, universe
//   POST /v1/projects/-/serviceAccounts/EMAIL:disable, EMAIL:enable   IAM: for tests to call
//
// It is plain HTTP, for the loopback interface: the metadata server is so, and the others are
// addressed by the credentials that a test writes.
#ifndef POSTBOX_WORKER_EMULATOR_AUTH_AUTH_SERVER_H_
#define POSTBOX_WORKER_EMULATOR_AUTH_AUTH_SERVER_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/emulator/auth/bearer.h"
#include "worker/emulator/auth/issued_tokens.h"

namespace postbox::emulator {

struct AuthOptions {
  std::optional<int> port;                 // 0: a free one; nothing: no such server
  std::vector<std::string> users;          // EMAIL=REFRESH_TOKEN
  std::vector<std::string> providers;      // AUDIENCE=FILE, the public key of an identity provider
  std::vector<std::string> impersonators;  // CALLER=EMAIL: may have tokens of this account
  std::string metadata_account;            // of the machine; empty: no metadata server
  std::string metadata_scope = "https://www.googleapis.com/auth/cloud-platform";
  int token_seconds = 3600;  // how long a token holds
};

class AuthServer {
 public:
  // INVALID_ARGUMENT if an option has another form, UNAVAILABLE if the port cannot be had.
  // `verifier` knows the accounts that sign their tokens themselves.
  static absl::StatusOr<std::unique_ptr<AuthServer>> Start(const std::string& host,
                                                           const std::string& project,
                                                           const AuthOptions& options,
                                                           std::shared_ptr<BearerVerifier> verifier,
                                                           std::shared_ptr<IssuedTokens> issued);
  virtual ~AuthServer() = default;  // stops it

  virtual int port() const = 0;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_AUTH_AUTH_SERVER_H_

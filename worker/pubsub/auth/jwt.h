// JSON Web Tokens (RFC 7519) that a service account signs itself, with RS256.
#ifndef POSTBOX_WORKER_PUBSUB_AUTH_JWT_H_
#define POSTBOX_WORKER_PUBSUB_AUTH_JWT_H_

#include <chrono>
#include <optional>
#include <string>

#include "worker/pubsub/auth/credentials_file.h"

namespace postbox::pubsub {

// For what a token is good: one of the two.
struct JwtUse {
  std::string audience{};  // a service, as https://HOST/
  std::string scope{};
};

// A token of this account that holds for `life` from `now` on. Nothing and the reason in `error` if
// the private key cannot be used.
std::optional<std::string> SignJwt(const ServiceAccountKey& key, const JwtUse& use,
                                   std::chrono::system_clock::time_point now,
                                   std::chrono::seconds life, std::string* error);

// The member of a token's claims that is a text; empty if there is none. The signature is not
// looked at.
std::string ClaimOf(const std::string& token, const char* name);

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_AUTH_JWT_H_

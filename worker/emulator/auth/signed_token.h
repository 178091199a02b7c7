// JSON Web Tokens (RFC 7519) of other issuers, signed with RS256.
#ifndef POSTBOX_WORKER_EMULATOR_AUTH_SIGNED_TOKEN_H_
#define POSTBOX_WORKER_EMULATOR_AUTH_SIGNED_TOKEN_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace postbox::emulator {

struct TokenClaims {
  std::string issuer;
  std::string subject;
  std::string audience;
  std::optional<std::string> scope;
};

// UNAUTHENTICATED in the words of Google's services, and why.
absl::Status InvalidToken(absl::string_view why);

// The claims, if a key of the issuer has signed them, they are not expired, and they hold for an
// hour at most. Clocks may differ by five minutes. `keys_of`: the files with the issuer's public
// keys, or certificates with them (PEM), which are read now.
absl::StatusOr<TokenClaims> CheckSignedToken(
    absl::string_view token,
    const std::function<std::vector<std::string>(const std::string& issuer)>& keys_of,
    absl::Time now);

// Whether one of the scopes lets its bearer use Pub/Sub.
bool IncludesPubSub(absl::string_view scopes);

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_AUTH_SIGNED_TOKEN_H_

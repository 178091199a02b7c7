// Checks bearer tokens as Google's services do: self-signed JSON Web Tokens (RFC 7519, RS256) of
// service accounts whose public keys are known, and tokens that the emulator has issued itself.
//
// A token is valid if one of the keys of its issuer has signed it, if it is not expired and lives
// for an hour at most, and if its audience is this service or its scope includes Pub/Sub. Clocks
// may differ by five minutes.
#ifndef POSTBOX_WORKER_EMULATOR_AUTH_BEARER_H_
#define POSTBOX_WORKER_EMULATOR_AUTH_BEARER_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "worker/emulator/auth/issued_tokens.h"
#include "worker/emulator/auth/signed_token.h"

namespace postbox::emulator {

// A service account that may call, and the file with its public key, or a certificate with it
// (PEM). The file is read when a token of this account comes: to take it away revokes the
// key, and may give it back.
struct TrustedAccount {
  std::string email;
  std::string key_file;
};

// EMAIL=FILE
absl::StatusOr<TrustedAccount> ParseTrustedAccount(const std::string& text);

class BearerVerifier {
 public:
  // `hosts`: names that clients know this service by, without a port. `issued`: tokens that are
  // taken beside those; may be null. Thread-safe.
  BearerVerifier(std::function<absl::Time()> now, std::vector<TrustedAccount> accounts,
                 std::vector<std::string> hosts, std::shared_ptr<const IssuedTokens> issued = {})
      : now_(std::move(now)),
        accounts_(std::move(accounts)),
        hosts_(std::move(hosts)),
        issued_(std::move(issued)) {}

  // `authorization`: the header's value. Returns the account that calls. UNAUTHENTICATED says what
  // is wrong with the token, PERMISSION_DENIED that its scope is another one.
  absl::StatusOr<std::string> Verify(absl::string_view authorization) const;

  // The claims of a token that one of the accounts has signed, for whatever service.
  absl::StatusOr<TokenClaims> CheckSigned(absl::string_view token) const;

 private:
  bool IsThisService(absl::string_view audience) const;

  const std::function<absl::Time()> now_;
  const std::vector<TrustedAccount> accounts_;
  const std::vector<std::string> hosts_;
  const std::shared_ptr<const IssuedTokens> issued_;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_AUTH_BEARER_H_

// Checks bearer tokens as Google's services do: self-signed JSON Web Tokens (RFC 7519, RS256) of
// service accounts whose public keys are known.
//
// A token is valid if one of the keys of its issuer has signed it, if it is not expired and lives
// for an hour at most, and if its audience is this service or its scope includes Pub/Sub. Clocks
// may differ by five minutes.
#ifndef POSTBOX_WORKER_EMULATOR_BEARER_H_
#define POSTBOX_WORKER_EMULATOR_BEARER_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace postbox::emulator {

// A service account that may call, and the file with its public key, or a certificate with it
// (PEM). The file is read when a token of this account comes: whoever takes it away revokes the
// key, and may give it back.
struct TrustedAccount {
  std::string email;
  std::string key_file;
};

// EMAIL=FILE
absl::StatusOr<TrustedAccount> ParseTrustedAccount(const std::string& text);

class BearerVerifier {
 public:
  // `hosts`: names that clients know this service by, without a port. Thread-safe.
  BearerVerifier(std::function<absl::Time()> now, std::vector<TrustedAccount> accounts,
                 std::vector<std::string> hosts)
      : now_(std::move(now)), accounts_(std::move(accounts)), hosts_(std::move(hosts)) {}

  // `authorization`: the header's value. Returns the account that calls. UNAUTHENTICATED says what
  // is wrong with the token, PERMISSION_DENIED that its scope is another one.
  absl::StatusOr<std::string> Verify(absl::string_view authorization);

 private:
  absl::Status CheckKey(const std::string& issuer, absl::string_view signed_text,
                        absl::string_view signature);
  bool IsThisService(absl::string_view audience) const;

  const std::function<absl::Time()> now_;
  const std::vector<TrustedAccount> accounts_;
  const std::vector<std::string> hosts_;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_BEARER_H_

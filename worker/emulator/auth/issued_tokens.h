// Access tokens that the emulator has issued, and the accounts that nothing is taken from.
#ifndef POSTBOX_WORKER_EMULATOR_AUTH_ISSUED_TOKENS_H_
#define POSTBOX_WORKER_EMULATOR_AUTH_ISSUED_TOKENS_H_

#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace postbox::emulator {

struct IssuedToken {
  std::string account;
  std::string scope;  // of OAuth, with blanks between several
  absl::Time expires;
};

// Thread-safe.
class IssuedTokens {
 public:
  explicit IssuedTokens(std::function<absl::Time()> now);

  // Whether the token has the form of those that are made here.
  static bool IsIssued(absl::string_view token);

  std::string Issue(const std::string& account, const std::string& scope, absl::Duration life);

  // Who and for what. UNAUTHENTICATED if the token was not issued here, has expired, was revoked,
  // or its account is disabled.
  absl::StatusOr<IssuedToken> Find(absl::string_view token) const;
  // The account, if the token is good for Pub/Sub.
  absl::StatusOr<std::string> Verify(absl::string_view token) const;

  void Revoke(absl::string_view token);

  // Nothing is taken from a disabled account: no tokens, of whatever kind, old or new.
  void Disable(const std::string& account, bool disabled);
  bool IsDisabled(const std::string& account) const;

 private:
  const std::function<absl::Time()> now_;
  mutable std::mutex mu_;
  std::map<std::string, IssuedToken, std::less<>> tokens_ ABSL_GUARDED_BY(mu_);
  std::set<std::string> disabled_ ABSL_GUARDED_BY(mu_);
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_AUTH_ISSUED_TOKENS_H_

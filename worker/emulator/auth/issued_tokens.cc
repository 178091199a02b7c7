#include "worker/emulator/auth/issued_tokens.h"

#include <openssl/rand.h>

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker/emulator/auth/signed_token.h"

namespace postbox::emulator {
namespace {

constexpr char kPrefix[] = "ya29.emulator-";  // Google's begin with ya29.

std::string RandomText() {
  std::string bytes(24, '\0');
  RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
  return absl::WebSafeBase64Escape(bytes);
}

}  // namespace

IssuedTokens::IssuedTokens(std::function<absl::Time()> now) : now_(std::move(now)) {}

bool IssuedTokens::IsIssued(absl::string_view token) { return absl::StartsWith(token, kPrefix); }

std::string IssuedTokens::Issue(const std::string& account, const std::string& scope,
                                absl::Duration life) {
  std::string token = kPrefix + RandomText();
  const absl::Time now = now_();
  const std::lock_guard<std::mutex> lock(mu_);
  std::erase_if(tokens_, [now](const auto& entry) {
    return entry.second.expires + absl::Hours(1) < now;  // until then it is said that it expired
  });
  tokens_[token] = {account, scope, now + life};
  return token;
}

absl::StatusOr<IssuedToken> IssuedTokens::Find(absl::string_view token) const {
  const std::lock_guard<std::mutex> lock(mu_);
  const auto found = tokens_.find(token);
  if (found == tokens_.end()) return InvalidToken("the token is not known, or was revoked");
  const IssuedToken& issued = found->second;
  if (disabled_.contains(issued.account)) {
    return InvalidToken(absl::StrCat(issued.account, " is disabled"));
  }
  if (issued.expires <= now_()) {
    return InvalidToken(absl::StrCat("the token has expired at ",
                                     absl::FormatTime(issued.expires, absl::UTCTimeZone())));
  }
  return issued;
}

absl::StatusOr<std::string> IssuedTokens::Verify(absl::string_view token) const {
  const auto issued = Find(token);
  if (!issued.ok()) return issued.status();
  if (!IncludesPubSub(issued->scope)) {
    return absl::PermissionDeniedError("Request had insufficient authentication scopes.");
  }
  return issued->account;
}

void IssuedTokens::Revoke(absl::string_view token) {
  const std::lock_guard<std::mutex> lock(mu_);
  const auto found = tokens_.find(token);
  if (found != tokens_.end()) tokens_.erase(found);
}

void IssuedTokens::Disable(const std::string& account, bool disabled) {
  const std::lock_guard<std::mutex> lock(mu_);
  if (disabled) {
    disabled_.insert(account);
  } else {
    disabled_.erase(account);
  }
}

bool IssuedTokens::IsDisabled(const std::string& account) const {
  const std::lock_guard<std::mutex> lock(mu_);
  return disabled_.contains(account);
}

}  // namespace postbox::emulator

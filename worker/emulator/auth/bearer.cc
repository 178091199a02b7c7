#include "worker/emulator/auth/bearer.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "worker/emulator/auth/signed_token.h"

namespace postbox::emulator {

absl::StatusOr<TrustedAccount> ParseTrustedAccount(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
  if (parts.size() != 2 || parts[0].empty() || parts[1].empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", text, "\" is not of the form EMAIL=FILE, an account and its public key"));
  }
  return TrustedAccount{parts[0], parts[1]};
}

absl::StatusOr<TokenClaims> BearerVerifier::CheckSigned(absl::string_view token) const {
  auto claims = CheckSignedToken(
      token,
      [this](const std::string& issuer) {
        std::vector<std::string> files;
        for (const TrustedAccount& account : accounts_) {
          if (account.email == issuer) files.push_back(account.key_file);
        }
        return files;
      },
      now_());
  if (claims.ok() && issued_ != nullptr && issued_->IsDisabled(claims->issuer)) {
    return InvalidToken(absl::StrCat(claims->issuer, " is disabled"));
  }
  return claims;
}

absl::StatusOr<std::string> BearerVerifier::Verify(absl::string_view authorization) const {
  absl::string_view token = authorization;
  if (!absl::ConsumePrefix(&token, "Bearer ")) return InvalidToken("there is no bearer token");
  if (issued_ != nullptr && IssuedTokens::IsIssued(token)) return issued_->Verify(token);
  const auto claims = CheckSigned(token);
  if (!claims.ok()) return claims.status();
  const std::string& audience = claims->audience;
  if (!audience.empty() && !IsThisService(audience)) {
    return InvalidToken(
        absl::StrCat("the token is for \"", audience, "\", which is not this service"));
  }
  if (claims->scope ? !IncludesPubSub(*claims->scope) : audience.empty()) {
    return absl::PermissionDeniedError("Request had insufficient authentication scopes.");
  }
  return claims->issuer;
}

// https://HOST/ or https://HOST:PORT/, with or without the name of a service behind it.
bool BearerVerifier::IsThisService(absl::string_view audience) const {
  if (!absl::ConsumePrefix(&audience, "https://")) return false;
  return std::any_of(hosts_.begin(), hosts_.end(), [&](const std::string& host) {
    absl::string_view path = audience;
    if (!absl::ConsumePrefix(&path, host)) return false;
    if (absl::ConsumePrefix(&path, ":")) {
      path.remove_prefix(std::min(path.find_first_not_of("0123456789"), path.size()));
    }
    return path == "/" || absl::StartsWith(path, "/google.pubsub.v1.") ||
           absl::StartsWith(path, "/google.iam.v1.");
  });
}

}  // namespace postbox::emulator

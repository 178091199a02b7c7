#include "worker/pubsub/auth/held_token.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "proto/rules/error_class.h"

namespace postbox::pubsub {

namespace {

constexpr std::size_t kMostIdentity = 300;

// For a state that is shown: in one line, and cut.
std::string Shortened(std::string text) {
  text = text.substr(0, kMostIdentity);
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c >= 0x7F; }, '?');
  return text;
}

std::string IdentityOf(const CredentialsFile& file) {
  if (const auto* key = std::get_if<ServiceAccountKey>(&file.identity)) return key->email;
  if (const auto* user = std::get_if<AuthorizedUser>(&file.identity)) return user->account;
  if (const auto* account = std::get_if<ExternalAccount>(&file.identity)) {
    return account->impersonation ? account->impersonation->account() : account->audience;
  }
  if (const auto* account = std::get_if<ImpersonatedAccount>(&file.identity)) {
    return account->impersonation.account();
  }
  return "";
}

}  // namespace

Authorization HeldToken::Get(TimePoint now, WallTime wall) {
  if (!header_.empty() && wall >= *state_.valid_until) header_.clear();
  wanted_ = wanted_ || header_.empty() || wall >= replace_at_;
  if (!header_.empty()) return {.header = header_, .quota_project = quota_project_};
  if (!failure_ || now >= next_try_) return {};
  return {.code = failure_->passes ? kUnavailable : kUnauthenticated,
          .error = "no access token: " + failure_->text};
}

bool HeldToken::Reject(const std::string& header, const std::string& message, TimePoint now) {
  // Another token has taken its place, or is on its way.
  if (header != header_) return true;
  refused_ = true;
  state_.last_error = Shortened(message);
  if (rejected_at_ != TimePoint() && now < rejected_at_ + kRejectInterval) return false;
  rejected_at_ = now;
  header_.clear();
  state_.valid_until.reset();
  failure_.reset();
  next_try_ = now;
  wanted_ = true;
  return true;
}

void HeldToken::Accepted() {
  refused_ = false;
  if (!failure_) state_.last_error.clear();
}

bool HeldToken::MustFetch(TimePoint now, WallTime wall) const {
  return wanted_ && now >= next_try_ && (header_.empty() || wall >= replace_at_);
}

HeldToken::TimePoint HeldToken::NextFetch(TimePoint now) {
  // It was wanted in a margin that the clock has left again: the next caller says so.
  if (now >= next_try_) wanted_ = false;
  return wanted_ ? next_try_ : now + kIdle;
}

void HeldToken::SetCredentials(const CredentialsFile& file) {
  state_.kind = file.type;
  state_.identity = Shortened(IdentityOf(file));
  quota_project_ = file.quota_project;
}

void HeldToken::SetToken(const AccessToken& token, TimePoint now, WallTime wall) {
  header_ = "Bearer " + token.token;
  state_.valid_until = token.expires;
  if (!token.identity.empty()) state_.identity = Shortened(token.identity);
  if (!refused_) state_.last_error.clear();
  replace_at_ =
      token.expires - std::min<WallTime::duration>(kLongestMargin, (token.expires - wall) / 10);
  failure_.reset();
  backoff_.Reset();
  next_try_ = now;
  wanted_ = false;
}

void HeldToken::SetFailure(TokenError error, TimePoint now) {
  state_.last_error = Shortened(error.text);
  failure_ = std::move(error);
  next_try_ = now + backoff_.Next();
  wanted_ = false;  // until the next request for one
}

}  // namespace postbox::pubsub

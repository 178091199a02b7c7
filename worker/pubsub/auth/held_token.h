// The token that calls carry now, and when the next one is to be fetched.
//
// A token that ends soon is replaced while it is still in use, so nothing waits for the next one.
// It is fetched only if it is wanted, that is, if a caller has asked since the last one came. After
// a failure the next request comes after a backoff; meanwhile callers have the error at once, or
// the old token as long as it is valid.
//
// Pure logic, without a clock and without a lock: the caller has both (token_source.h). Tokens end
// at a time of the day, `wall`; pauses are measured with a clock that is steady, `now`.
#ifndef POSTBOX_WORKER_PUBSUB_AUTH_HELD_TOKEN_H_
#define POSTBOX_WORKER_PUBSUB_AUTH_HELD_TOKEN_H_

#include <atomic>
#include <chrono>
#include <optional>
#include <string>

#include "extension/rules/backoff.h"
#include "worker/pubsub/auth/credential_spec.h"
#include "worker/pubsub/auth/credentials_file.h"
#include "worker/pubsub/auth/token_request.h"

namespace postbox::pubsub {

// What a call is told. Neither: wait until something changes.
struct Authorization {
  std::string header{};  // the value of `authorization`
  int code = 0;          // of gRPC; not 0: there is no token
  std::string error{};
  std::string quota_project{};  // what the credentials say of it, if there is a header
};

class HeldToken {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using WallTime = std::chrono::system_clock::time_point;

  // A token that has been refused is thrown away at most this often.
  static constexpr std::chrono::seconds kRejectInterval{1};
  // The last part of a token's life, in which it is replaced, is a tenth of it, this at most.
  static constexpr std::chrono::seconds kLongestMargin{300};
  static constexpr BackoffPolicy kBackoff{std::chrono::milliseconds(250), 2.0,
                                          std::chrono::seconds(3)};
  // A token that is not wanted is looked at again after this time.
  static constexpr std::chrono::seconds kIdle{3600};

  // What a call that begins now is told.
  Authorization Get(TimePoint now, WallTime wall);
  // A call with this header was refused. True: it may be repeated with what Get() returns.
  bool Reject(const std::string& header, const std::string& message, TimePoint now);
  // The present token was taken.
  void Accepted();
  // Whether a token was refused, and none was taken since. Any thread, without the lock.
  bool refused() const { return refused_; }

  // Whether a token is wanted, though it need not be time to fetch it.
  bool wanted() const { return wanted_; }
  bool MustFetch(TimePoint now, WallTime wall) const;
  // Until when nothing is to be fetched, if nothing is now.
  TimePoint NextFetch(TimePoint now);

  // What a fetch has found: the credentials, and then a token or an error.
  void SetCredentials(const CredentialsFile& file);
  void SetToken(const AccessToken& token, TimePoint now, WallTime wall);
  void SetFailure(TokenError error, TimePoint now);

  const CredentialState& state() const { return state_; }

 private:
  bool wanted_ = true;  // it was asked for since the last token
  CredentialState state_;
  std::string header_;  // empty: no token
  std::string quota_project_;
  WallTime replace_at_;
  std::optional<TokenError> failure_;  // of the last fetch
  Backoff backoff_{kBackoff};
  TimePoint next_try_;
  TimePoint rejected_at_;
  std::atomic<bool> refused_ = false;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_AUTH_HELD_TOKEN_H_

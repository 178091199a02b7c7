// The token that the calls of a client carry, and who it belongs to.
//
// Tokens are asked for on a thread of its own, in which every signal is blocked: calls never wait
// for that on the event loop's thread. There is one request at a time. A token that ends soon is
// replaced while it is still in use, so nothing waits for the next one. After a failure the next
// request comes after a backoff; meanwhile callers have the error at once, or the old token as long
// as it is valid.
//
// The credentials are read again for each token. So a key that was replaced takes effect with the
// next token, or when Pub/Sub refuses the present one (Reject()).
#ifndef POSTBOX_WORKER_PUBSUB_TOKEN_SOURCE_H_
#define POSTBOX_WORKER_PUBSUB_TOKEN_SOURCE_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "proto/rules/backoff.h"
#include "worker/pubsub/credential_spec.h"
#include "worker/pubsub/token_request.h"

namespace postbox::pubsub {

// What a call is told. Neither: wait until something changes.
struct Authorization {
  std::string header{};  // the value of `authorization`
  int code = 0;          // of gRPC; not 0: there is no token
  std::string error{};
  std::string quota_project{};  // what the credentials say of it, if there is a header
};

class TokenSource {
 public:
  using SteadyClock = std::chrono::steady_clock;
  // What time it is: tokens end at a time of the day.
  using WallClock = std::function<std::chrono::system_clock::time_point()>;

  // A token that has been refused is thrown away at most this often.
  static constexpr std::chrono::seconds kRejectInterval{1};
  // The last part of a token's life, in which it is replaced, is a tenth of it, this at most.
  static constexpr std::chrono::seconds kLongestMargin{300};
  static constexpr BackoffPolicy kBackoff{std::chrono::milliseconds(250), 2.0,
                                          std::chrono::seconds(3)};

  // Starts the thread, and asks for the first token. `quota_project`: what the credentials say of
  // it. If they cannot be used, returns null and puts one sentence into `error`.
  static std::unique_ptr<TokenSource> Start(const CredentialSpec& spec, const std::string& audience,
                                            std::string* quota_project, std::string* error,
                                            WallClock wall = std::chrono::system_clock::now);
  // Likewise, but does not look at the credentials here. As long as they cannot be used, Get() says
  // why, and they are looked at again, with a backoff: a file may be mounted late, and a metadata
  // server may answer late. Returns null only if there is no thread.
  static std::unique_ptr<TokenSource> StartUnchecked(const CredentialSpec& spec,
                                                     const std::string& audience,
                                                     std::string* error);
  // Ends what is under way.
  ~TokenSource();
  TokenSource(const TokenSource&) = delete;
  TokenSource& operator=(const TokenSource&) = delete;

  // Any thread. Never waits for the network.
  Authorization Get();
  // Waits for an answer, `limit` at most. For threads that may wait.
  Authorization Wait(std::chrono::milliseconds limit);
  // Pub/Sub has answered UNAUTHENTICATED to a call with this header. True: the credentials are read
  // again, or were meanwhile, so that the call may be repeated with what Get() returns.
  bool Reject(const std::string& header, const std::string& message);
  // Pub/Sub has taken the present token. Costs nothing unless one was refused before.
  void Accepted();

  CredentialState State() const;

  // Called on the thread of its own when Get() has something new to say. Set it before the first
  // Get(). It must not call back.
  void OnChange(std::function<void()> changed);

 private:
  TokenSource(CredentialSpec spec, std::string audience, WallClock wall);
  bool StartThread(std::string* error);
  void ThreadMain();
  void Note(const CredentialsFile& file);
  void FetchOne(std::unique_lock<std::mutex>* lock);
  bool WantsToken(SteadyClock::time_point now) const;
  Authorization GetLocked(SteadyClock::time_point now);

  const CredentialSpec spec_;
  const WallClock wall_;
  HttpClient http_;
  TokenRequest request_;
  std::thread thread_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by it:
  bool stopping_ = false;
  bool wanted_ = true;  // it was asked for since the last token
  CredentialState state_;
  std::string header_;  // empty: no token
  std::string quota_project_;
  std::chrono::system_clock::time_point replace_at_;
  std::optional<TokenError> failure_;  // of the last request
  Backoff backoff_{kBackoff};
  SteadyClock::time_point next_try_;
  SteadyClock::time_point rejected_at_;
  std::function<void()> on_change_;

  std::atomic<bool> refused_ = false;  // Pub/Sub has refused a token, and has taken none since
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_TOKEN_SOURCE_H_

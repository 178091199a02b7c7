// The token that the calls of a client carry, and who it belongs to.
//
// Tokens are fetched on a separate thread, in which every signal is blocked: calls never wait for
// that on the event loop's thread. There is one request at a time. When one is due, held_token.h
// says.
//
// The credentials are read again for each token. So a key that was replaced takes effect with the
// next token, or when Pub/Sub refuses the present one (Reject()).
#ifndef POSTBOX_WORKER_PUBSUB_AUTH_TOKEN_SOURCE_H_
#define POSTBOX_WORKER_PUBSUB_AUTH_TOKEN_SOURCE_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "worker/pubsub/auth/credential_spec.h"
#include "worker/pubsub/auth/held_token.h"
#include "worker/pubsub/auth/token_request.h"
#include "worker/pubsub/http_client.h"

namespace postbox::pubsub {

class TokenSource {
 public:
  // What time it is: tokens end at a time of the day.
  using WallClock = std::function<std::chrono::system_clock::time_point()>;

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

  // Called on that thread when Get() has something new to say. Set it before the first
  // Get(). It must not call back.
  void OnChange(std::function<void()> changed);

 private:
  TokenSource(CredentialSpec spec, std::string audience, WallClock wall);
  bool StartThread(std::string* error);
  void ThreadMain();
  void FetchOne(std::unique_lock<std::mutex>* lock);
  Authorization GetLocked();

  const CredentialSpec spec_;
  const WallClock wall_;
  HttpClient http_;
  TokenRequest request_;
  std::thread thread_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by it:
  bool stopping_ = false;
  HeldToken token_;
  std::function<void()> on_change_;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_AUTH_TOKEN_SOURCE_H_

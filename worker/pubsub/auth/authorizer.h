// Starts calls as soon as there is a token for them. For the event loop's thread.
#ifndef POSTBOX_WORKER_PUBSUB_AUTH_AUTHORIZER_H_
#define POSTBOX_WORKER_PUBSUB_AUTH_AUTHORIZER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "worker/pubsub/auth/token_source.h"
#include "worker/pubsub/event_loop.h"

namespace postbox::pubsub {

class Authorizer {
 public:
  // `answer` has a header or a code; for plain text it has neither.
  using Start = absl::AnyInvocable<void(const Authorization& answer)>;

  // `tokens` is null for plain text.
  Authorizer(EventLoop* loop, std::unique_ptr<TokenSource> tokens);
  ~Authorizer();
  Authorizer(const Authorizer&) = delete;
  Authorizer& operator=(const Authorizer&) = delete;

  bool has_tokens() const { return tokens_ != nullptr; }

  // Calls `start` at once if it can, else later, in the order of the calls.
  void WhenReady(Start start);

  // A call with this header has ended with this status. True: it was refused, and may be repeated
  // through WhenReady().
  bool Refused(const std::string& header, int code, const std::string& message);

  CredentialState State() const;  // any thread

 private:
  void StartWaiting();

  EventLoop* const loop_;
  // What the token source's thread has posted finds out by it whether this is still here.
  const std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
  std::vector<Start> waiting_;
  const std::unique_ptr<TokenSource> tokens_;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_AUTH_AUTHORIZER_H_

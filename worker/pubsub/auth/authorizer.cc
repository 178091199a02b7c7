#include "worker/pubsub/auth/authorizer.h"

#include <utility>

#include "proto/rules/error_class.h"

namespace postbox::pubsub {

Authorizer::Authorizer(EventLoop* loop, std::unique_ptr<TokenSource> tokens)
    : loop_(loop), tokens_(std::move(tokens)) {
  if (tokens_ == nullptr) return;
  tokens_->OnChange([this, here = std::weak_ptr<bool>(here_)] {
    loop_->Post([this, here] {
      if (!here.expired()) StartWaiting();
    });
  });
}

Authorizer::~Authorizer() = default;

void Authorizer::WhenReady(Start start) {
  if (tokens_ == nullptr) return start({});
  if (waiting_.empty()) {
    const Authorization answer = tokens_->Get();
    if (!answer.header.empty() || answer.code != kOk) return start(answer);
  }
  waiting_.push_back(std::move(start));
}

void Authorizer::StartWaiting() {
  std::vector<Start> starts = std::exchange(waiting_, {});
  for (Start& start : starts) WhenReady(std::move(start));
}

bool Authorizer::Refused(const std::string& header, int code, const std::string& message) {
  if (tokens_ == nullptr || header.empty()) return false;
  if (code == kUnauthenticated) return tokens_->Reject(header, StatusText(code, message));
  if (code == kOk) tokens_->Accepted();
  return false;
}

CredentialState Authorizer::State() const {
  return tokens_ == nullptr ? CredentialState() : tokens_->State();
}

}  // namespace postbox::pubsub

#include "worker/emulator/answer_first.h"

#include <utility>

#include "absl/strings/match.h"

namespace postbox::emulator {

using grpc::experimental::InterceptionHookPoints;

class AnswerFirst::Interceptor final : public grpc::experimental::Interceptor {
 public:
  Interceptor(AnswerFirst* owner, const grpc::ServerContextBase* context)
      : owner_(owner), context_(context) {}
  ~Interceptor() override { owner_->Answered(context_); }

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_SEND_MESSAGE)) {
      owner_->Answered(context_);
    }
    methods->Proceed();
  }

 private:
  AnswerFirst* const owner_;
  const grpc::ServerContextBase* const context_;
};

class AnswerFirst::Factory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit Factory(AnswerFirst* owner) : owner_(owner) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    if (!absl::EndsWith(info->method(), "/Publish")) return nullptr;
    return new Interceptor(owner_, info->server_context());
  }

 private:
  AnswerFirst* const owner_;
};

void AnswerFirst::Then(const grpc::ServerContextBase* context, std::function<void()> action) {
  const std::lock_guard<std::mutex> lock(mu_);
  actions_[context] = std::move(action);
}

void AnswerFirst::Answered(const grpc::ServerContextBase* context) {
  std::function<void()> action;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    const auto found = actions_.find(context);
    if (found == actions_.end()) return;
    action = std::move(found->second);
    actions_.erase(found);
  }
  action();
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
AnswerFirst::MakeInterceptors() {
  return std::make_unique<Factory>(this);
}

}  // namespace postbox::emulator

#include "worker/emulator/answer_first.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/time/clock.h"

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
  const std::lock_guard<std::mutex> lock(mu_);
  const auto found = actions_.find(context);
  if (found == actions_.end()) return;
  due_.emplace_back(absl::Now() + moment_, std::move(found->second));
  actions_.erase(found);
  if (due_.size() == 1) changed_.notify_one();
}

AnswerFirst::AnswerFirst(absl::Duration moment) : moment_(moment), runner_([this] { RunDue(); }) {}

AnswerFirst::~AnswerFirst() {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    stopping_ = true;
  }
  changed_.notify_one();
  runner_.join();
}

void AnswerFirst::RunDue() {
  std::unique_lock<std::mutex> lock(mu_);
  while (!stopping_) {
    if (due_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const absl::Duration left = due_.front().first - absl::Now();
    if (left > absl::ZeroDuration()) {
      changed_.wait_for(lock, absl::ToChronoNanoseconds(std::min(left, moment_)));
      continue;
    }
    const std::function<void()> action = std::move(due_.front().second);
    due_.pop_front();
    lock.unlock();
    action();
    lock.lock();
  }
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
AnswerFirst::MakeInterceptors() {
  return std::make_unique<Factory>(this);
}

}  // namespace postbox::emulator

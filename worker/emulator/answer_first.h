// Actions that run when the answer of a call has been sent.
//
// A message must not reach a stream before its Publish has been answered: clients' tests wait for
// an id that they only know from the answer. So the service of Publish accepts the messages,
// leaves their delivery here, and returns its answer. gRPC tells an interceptor when the answer was
// written to the connection; then the action runs. If the call ends without an answer, it runs when
// the call is destroyed: the messages were taken either way.
#ifndef POSTBOX_WORKER_EMULATOR_ANSWER_FIRST_H_
#define POSTBOX_WORKER_EMULATOR_ANSWER_FIRST_H_

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/server_interceptor.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "absl/base/thread_annotations.h"

namespace postbox::emulator {

class AnswerFirst {
 public:
  // Runs `action` once, after the answer of this call. One action for each call. It must not block.
  void Then(const grpc::ServerContextBase* context, std::function<void()> action);

  // For the server whose calls these are. This object must outlive it.
  std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeInterceptors();

 private:
  class Interceptor;
  class Factory;
  void Answered(const grpc::ServerContextBase* context);

  std::mutex mu_;
  std::map<const grpc::ServerContextBase*, std::function<void()>> actions_ ABSL_GUARDED_BY(mu_);
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_ANSWER_FIRST_H_

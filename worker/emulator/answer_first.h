// Actions that run when the answer of a call has been sent.
//
// A message must not reach a stream before its Publish has been answered: clients' tests wait for
// an id that they only know from the answer. So the service of Publish accepts the messages,
// leaves their delivery here, and returns its answer. gRPC tells an interceptor when the answer was
// written to the connection; a moment later the action runs. If the call ends without an answer,
// the moment begins when the call is destroyed: the messages were taken either way.
//
// The moment is for the client. Google's Node client has the result of a call some turns of its
// event loop after the bytes, and a message on a stream sooner. Without the moment 97 of 100
// messages were faster than their ids. A client that has no processor for longer than the moment
// may still see the message first: on a busy machine (two processors, a load of 20 to 60) 15 of 100
// messages were faster with 5 ms, 2 with 20 ms and 1 with 50 ms.
#ifndef POSTBOX_WORKER_EMULATOR_ANSWER_FIRST_H_
#define POSTBOX_WORKER_EMULATOR_ANSWER_FIRST_H_

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/server_interceptor.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

namespace postbox::emulator {

class AnswerFirst {
 public:
  explicit AnswerFirst(absl::Duration moment);
  ~AnswerFirst();  // drops the actions that are not due yet
  AnswerFirst(const AnswerFirst&) = delete;
  AnswerFirst& operator=(const AnswerFirst&) = delete;

  // Runs `action` once, after the answer of this call. One action for each call. It must not block.
  void Then(const grpc::ServerContextBase* context, std::function<void()> action);

  // For the server whose calls these are. This object must outlive it.
  std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeInterceptors();

 private:
  class Interceptor;
  class Factory;
  void Answered(const grpc::ServerContextBase* context);

  void RunDue();  // until stopping_

  const absl::Duration moment_;
  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<std::pair<absl::Time, std::function<void()>>> due_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::map<const grpc::ServerContextBase*, std::function<void()>> actions_ ABSL_GUARDED_BY(mu_);
  std::thread runner_;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_ANSWER_FIRST_H_

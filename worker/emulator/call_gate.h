// Every RPC passes this: it counts calls, checks who may make them, applies faults, and converts
// errors.
#ifndef POSTBOX_WORKER_EMULATOR_CALL_GATE_H_
#define POSTBOX_WORKER_EMULATOR_CALL_GATE_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker/emulator/auth/access_control.h"
#include "worker/emulator/faults.h"

namespace postbox::emulator {

// The same code, message and details. The details are sent as google.rpc.Status in the trailers.
grpc::Status ToGrpc(const absl::Status& status);

struct CallCounters {
  int64_t calls = 0;
  int64_t errors = 0;
};

class CallGate {
 public:
  explicit CallGate(Faults* faults) : faults_(faults) {}

  // Runs a unary call. `matches` tells whether the request has the message that a rule asks for.
  // `action` is told whether its answer is withheld: a fault delays it, or another one is sent.
  grpc::Status Run(grpc::ServerContext* context, const char* rpc,
                   const google::protobuf::Message& request,
                   absl::FunctionRef<bool(const Fault&)> matches,
                   absl::FunctionRef<absl::Status(bool answer_withheld)> action);
  grpc::Status Run(grpc::ServerContext* context, const char* rpc,
                   const google::protobuf::Message& request,
                   absl::FunctionRef<absl::Status()> action);

  void CountCall(const char* rpc);
  void CountError(const char* rpc);
  std::map<std::string, CallCounters> Counters();

  // Ends the calls that wait. No call waits afterwards.
  void Stop() { stopping_ = true; }
  bool stopping() const { return stopping_; }

  Faults* faults() { return faults_; }

  // From now on calls need permissions. To be called before there are any.
  void Enforce(std::unique_ptr<AccessControl> access) { access_ = std::move(access); }
  const AccessControl* access() const { return access_.get(); }  // null: every caller may do all

 private:
  // Waits as long as the fault says, or until the faults are cleared again: so far it was `clears`
  // times. Returns false if the call was cancelled or the server stops.
  bool Delay(grpc::ServerContext* context, const Fault& fault, int64_t clears) const;

  Faults* const faults_;
  std::unique_ptr<AccessControl> access_;
  std::atomic<bool> stopping_{false};
  std::mutex mu_;
  std::map<std::string, CallCounters> counters_ ABSL_GUARDED_BY(mu_);
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_CALL_GATE_H_

// What every RPC passes through: counting, faults, and the translation of errors.
#ifndef POSTBOX_WORKER_EMULATOR_CALL_GATE_H_
#define POSTBOX_WORKER_EMULATOR_CALL_GATE_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "worker/emulator/faults.h"

namespace postbox::emulator {

// The same code, message and details; the details as google.rpc.Status in the trailers.
grpc::Status ToGrpc(const absl::Status& status);

struct CallCounters {
  int64_t calls = 0;
  int64_t errors = 0;
};

class CallGate {
 public:
  explicit CallGate(Faults* faults) : faults_(faults) {}

  // Runs a unary call. `matches` says whether a rule that asks for a message finds it in the
  // request.
  grpc::Status Run(grpc::ServerContext* context, const char* rpc,
                   absl::FunctionRef<bool(const Fault&)> matches,
                   absl::FunctionRef<absl::Status()> action);
  grpc::Status Run(grpc::ServerContext* context, const char* rpc,
                   absl::FunctionRef<absl::Status()> action);

  void CountCall(const char* rpc);
  void CountError(const char* rpc);
  std::map<std::string, CallCounters> Counters();

  // Ends what waits; nothing waits afterwards.
  void Stop() { stopping_ = true; }
  bool stopping() const { return stopping_; }

  Faults* faults() { return faults_; }

 private:
  // False if the call was cancelled or the server stops.
  bool Sleep(grpc::ServerContext* context, absl::Duration duration) const;

  Faults* const faults_;
  std::atomic<bool> stopping_{false};
  absl::Mutex mu_;
  std::map<std::string, CallCounters> counters_ ABSL_GUARDED_BY(mu_);
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_CALL_GATE_H_

// The faults that tests inject (proto/postbox/emulator/v1/faults.proto). Without gRPC; thread-safe.
// They are applied by call_gate.h to unary calls and by streaming_pull.h to streams.
#ifndef POSTBOX_WORKER_EMULATOR_FAULTS_H_
#define POSTBOX_WORKER_EMULATOR_FAULTS_H_

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/pubsub/v1/pubsub.pb.h"
#include "postbox/emulator/v1/faults.pb.h"

namespace postbox::emulator {

using Fault = postbox::emulator::v1::Fault;

// True if this message has what the rule asks for in a message, if anything.
bool Matches(const Fault& fault, const google::pubsub::v1::PubsubMessage& message);
bool AsksForMessage(const Fault& fault);

// The status that a fault returns. If it has no code, the code is `fallback`.
absl::Status FaultStatus(const Fault& fault, absl::StatusCode fallback);

// Reads the `key=value,...` of the command line. `postbox emulator-fault --help` lists the keys.
absl::StatusOr<Fault> ParseFault(absl::string_view spec);

class Faults {
 public:
  Faults();

  void Add(const Fault& fault);
  void Clear();
  // The number of calls of Clear. A stalled stream waits for the next one, as does a delayed call.
  int64_t clears() const { return clears_.load(); }

  // Fires the first rule for this RPC and one of these actions that `matches` and that is not to be
  // skipped. `clears`, if given, is set to that number as it is then.
  std::optional<Fault> Fire(absl::string_view rpc, std::initializer_list<Fault::Action> actions,
                            absl::FunctionRef<bool(const Fault&)> matches,
                            int64_t* clears = nullptr);

  int64_t fired() const { return fired_.load(); }
  int64_t waiting();  // rules that can still fire

 private:
  struct Rule {
    Fault fault;
    int64_t to_skip;
    int64_t left;  // < 0: without end
  };

  std::atomic<bool> any_{false};  // false: there are no rules, and the lock is not needed
  std::atomic<int64_t> clears_{0};
  std::atomic<int64_t> fired_{0};
  std::mutex mu_;
  std::vector<Rule> rules_ ABSL_GUARDED_BY(mu_);
  std::mt19937_64 random_ ABSL_GUARDED_BY(mu_);
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_FAULTS_H_

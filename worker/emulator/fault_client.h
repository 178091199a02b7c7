// `postbox emulator-fault`: adds and clears faults of a running emulator, prints its counters.
#ifndef POSTBOX_WORKER_EMULATOR_FAULT_CLIENT_H_
#define POSTBOX_WORKER_EMULATOR_FAULT_CLIENT_H_

#include <string>
#include <vector>

namespace postbox::emulator {

struct FaultClientOptions {
  std::string address;             // host:port
  std::vector<std::string> specs;  // see ParseFault
  bool clear = false;              // before the specs are added
  bool stats = false;              // printed as JSON after that
};

// Returns the exit status.
int RunFaultClient(const FaultClientOptions& options);

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_FAULT_CLIENT_H_

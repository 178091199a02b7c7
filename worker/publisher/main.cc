// The entry of the publisher worker: what the launcher starts through bgw_library_name and
// bgw_function_name. The order of things is told in registration.h.
//
// Scenarios:
//  - SIGTERM (fast shutdown, DROP EXTENSION, DROP DATABASE, postbox.publishers lowered): drains
//    for a few seconds, gives its leases back, exits 0.
//  - the launcher needs the slot for another database: what is on its way gets its results first,
//    then as after SIGTERM.
//  - an ERROR that no lane took: logged, exit 1; the launcher starts another worker after a delay,
//    which takes over the leases.
//  - the code of an outbox does not let itself be cancelled (step_limit.h): FATAL, exit 1; the next
//    worker suspends the publications of that outbox first.
//  - the postmaster dies: the wait returns, exit 1.
//  - killed: the postmaster restarts the cluster; the next worker takes over the leases.
#include "extension/base/guard.h"
#include "worker/publisher/base/registration.h"
#include "worker/publisher/heap.h"
#include "worker/publisher/terminate.h"
#include "worker/publisher/worker.h"

extern "C" {
#include <postmaster/bgworker.h>
#include <postmaster/interrupt.h>
#include <utils/guc.h>

POSTBOX_MODULE("postbox_worker");
PGDLLEXPORT void postbox_publisher_main(Datum slot);
}

namespace postbox::publisher {

namespace {

// Never destroyed: the process ends inside Run() or in the server's exit.
Worker* worker = nullptr;

// Threads must be gone before exit() destroys what they use; also on FATAL.
void StopThreads(int /*code*/, Datum /*argument*/) {
  if (worker != nullptr && !ThreadDied()) worker->StopClients();
}

}  // namespace

}  // namespace postbox::publisher

void postbox_publisher_main(Datum slot) {
  using namespace postbox::publisher;
  InstallTerminateHandler();
  SetUpHeap();
  // gRPC would write into the server log by itself each time that something fails. The worker says
  // it, with the publication. The variable, set for the server, allows more.
  setenv("GRPC_VERBOSITY", "NONE", 0);
  pqsignal(SIGHUP, SignalHandlerForConfigReload);
  pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
  BackgroundWorkerUnblockSignals();
  Register(slot);
  Connect();
  // A process that starts has the postmaster's settings, and does not hear of others at first.
  ProcessConfigFile(PGC_SIGHUP);
  if (!ExtensionExists()) LeaveWithoutExtension();
  if (TellPublishers() == 0) LeaveUnwanted();
  Ready();
  before_shmem_exit(StopThreads, 0);
  postbox::Guarded([] {
    worker = new Worker();
    worker->Run();
  });
}

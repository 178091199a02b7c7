// The user and the settings of a publisher worker: what a database or the server may have set for
// its sessions and a worker cannot work with (ALTER DATABASE ... SET reaches background workers,
// too), and the plans that it relies on.
#ifndef POSTBOX_EXTENSION_TRUST_WORKER_SESSION_H_
#define POSTBOX_EXTENSION_TRUST_WORKER_SESSION_H_

namespace postbox {

// After the worker has connected, in no transaction.
void PinWorkerSession();
// Its part that needs no transaction.
void PinWorkerSettings();

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_TRUST_WORKER_SESSION_H_

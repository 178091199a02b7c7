// What happens when an exception has nowhere to go (std::terminate): the worker leaves with an
// error instead of aborting, because an abort makes the postmaster restart the whole cluster.
//
// proc_exit is for the main thread only. On another thread the handler leaves a mark, wakes the
// main thread and sleeps for ever; the main thread then leaves without joining threads or running
// destructors of statics, which that thread may still use.
#ifndef POSTBOX_WORKER_PUBLISHER_TERMINATE_H_
#define POSTBOX_WORKER_PUBLISHER_TERMINATE_H_

namespace postbox::publisher {

// Call it on the main thread before any other thread is started and before anything else registers
// exit callbacks.
void InstallTerminateHandler();

// Leaves, as failed, if a thread has died.
void LeaveIfThreadDied();

// Whether a thread has died, so that joining threads would hang.
bool ThreadDied();

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_TERMINATE_H_

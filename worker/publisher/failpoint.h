// Places where a test can stop, break or kill the worker: postbox.failpoint, a list of name=action.
//
//   kill   the process kills itself with SIGKILL (the postmaster then restarts the cluster)
//   error  an ERROR is raised
//   pause  the worker waits here until the setting no longer says so, or SIGTERM comes
//
// Names: after_claim (the lease is committed, nothing was sent), after_publish_before_mark (the
// broker has answered, the table does not know). Never called in a transaction.
#ifndef POSTBOX_WORKER_PUBLISHER_FAILPOINT_H_
#define POSTBOX_WORKER_PUBLISHER_FAILPOINT_H_

namespace postbox::publisher {

void Failpoint(const char* name);

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_FAILPOINT_H_

// Places where a test can stop, break or kill the worker: postbox.failpoint, a list of name=action.
//
//   kill   the process kills itself with SIGKILL (the postmaster then restarts the cluster)
//   error  an ERROR is raised
//   pause  the worker waits here until the setting no longer says so, or SIGTERM comes
//
// Names, in the order in which an event comes by:
//
//   after_claim                the lease is committed; nothing is given to the client
//   before_send                in flight, the client does not have it yet
//   after_publish_before_mark  the broker has answered, the outbox does not know
//   after_mark                 the results are stored
//   before_checkpoint          a lane is about to store its position or to look after its leases
//   after_checkpoint           it has done so
//   during_rebase              a log was re-based, which is not committed
//   during_retention           events were purged, which is not committed
//   during_rotation            a log or an inbox was purged, which is not committed
//
// The last three are in a transaction. A pause there keeps its locks, and ends with an ERROR when
// the step has taken its time (step_limit.h).
#ifndef POSTBOX_WORKER_PUBLISHER_BASE_FAILPOINT_H_
#define POSTBOX_WORKER_PUBLISHER_BASE_FAILPOINT_H_

namespace postbox::publisher {

void Failpoint(const char* name);

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_BASE_FAILPOINT_H_

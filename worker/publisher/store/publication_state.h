// postbox.publication_state: whether a publication is suspended, until
// when and why.
//
// All workers share it. A worker that finds that the publication cannot be published suspends it
// for all of them. A publication that is suspended already is not suspended a second time, so
// several workers that fail together count as one failure.
//
// All functions run in a transaction of the caller's, with the rights of the worker itself.
#ifndef POSTBOX_WORKER_PUBLISHER_STORE_PUBLICATION_STATE_H_
#define POSTBOX_WORKER_PUBLISHER_STORE_PUBLICATION_STATE_H_

#include "extension/rules/backoff.h"
#include "worker/publisher/store/publication.h"

namespace postbox::publisher {

struct Suspension {
  bool publication_exists = false;
  int attempts = 0;          // failures in a row
  TimestampTz retry_at = 0;  // 0: not suspended
  TimestampTz since = 0;     // the first of them
};

Suspension ReadSuspension(const std::string& publication);

// Suspends a publication, longer with each failure in a row and at least until `earliest`, and
// keeps `error` for postbox.publication_status. Returns until when. If it is suspended already,
// nothing changes. If it has no state, nothing is stored, and only this worker waits. If it has
// another topic or credential by now, the failure says nothing about it: 0.
TimestampTz Suspend(const Publication& publication, const std::string& error,
                    const pubsub::BackoffPolicy& backoff, TimestampTz earliest = 0);

// The publication works again: its failures are no longer counted. Returns whether there were any.
// Of one that has another topic or credential by now, they stay.
bool EndSuspension(const Publication& publication);
// Something may have changed that concerns the publications with these credentials (empty: that of
// the server's environment), or all: each is tried at once, and soon again.
void RetryNow(const std::set<std::string>& credentials);
void RetryAllNow();

// So many events more of a table outbox were sent again. False: another session has locked the row.
bool StoreSentAgain(const std::string& publication, std::int64_t events);

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_STORE_PUBLICATION_STATE_H_

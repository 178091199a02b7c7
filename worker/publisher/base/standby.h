// What the server knows of its synchronous standbys.
#ifndef POSTBOX_WORKER_PUBLISHER_BASE_STANDBY_H_
#define POSTBOX_WORKER_PUBLISHER_BASE_STANDBY_H_

#include "extension/base/postgres.h"

namespace postbox::publisher {

// The position up to which as many standbys as synchronous_standby_names asks for have confirmed
// that WAL is on their disks; PG_UINT64_MAX if it asks for none. It is what a COMMIT with
// synchronous_commit = on waits for. It never goes back while the server runs, and begins at 0.
XLogRecPtr ConfirmedByStandbys();

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_BASE_STANDBY_H_

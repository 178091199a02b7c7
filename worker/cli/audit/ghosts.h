// Rows of an inbox of which the source has no event.
//
// A ghost was published by something else than the publication, or its event was removed by hand.
// But an event may also be gone because it is older than the retention of the outbox. Its UUIDv7
// says when it was emitted; of other ids only the time of arrival is known, which is later. So an
// event with such an id that arrives later than the retention of the outbox is taken for a ghost.
#ifndef POSTBOX_WORKER_CLI_AUDIT_GHOSTS_H_
#define POSTBOX_WORKER_CLI_AUDIT_GHOSTS_H_

#include <cstdint>

#include "worker/cli/audit/audit_event.h"

namespace postbox::cli {

struct RetainedFrom {
  int64_t source = 0;  // by the clock of the source
  int64_t reader = 0;  // the same time by the clock of the reader
};

// Whether the event of this row would still be in the outbox if it had been emitted there.
bool IsGhost(const Arrival& arrival, const RetainedFrom& retained);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_AUDIT_GHOSTS_H_

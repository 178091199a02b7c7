// The way of an event, as far as this database knows it: what an outbox has of it and in which
// state, why it is parked or expired, what an inbox did with it, and its dead letter.
//
// It is looked for by its id, by its key (the aggregate id) or by its trace. By id everything is
// looked through. An outbox has no index on keys and traces: of each the newest kNewest events are.
#ifndef POSTBOX_WORKER_CLI_CONSOLE_EVENT_WAY_H_
#define POSTBOX_WORKER_CLI_CONSOLE_EVENT_WAY_H_

#include "worker/cli/console/call.h"

namespace postbox::cli {

// Parameters: one of id, key and trace; optionally publication and inbox, to look only there.
//
// {"outgoing": [...], "incoming": [...], "dead_letters": [...], "discarded": [...],
//  "not_read": [{"place": ..., "reason": ...}], "complete": true}
Answer ReadEventWay(Session* session, const Arguments& arguments);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_CONSOLE_EVENT_WAY_H_

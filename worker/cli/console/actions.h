// What the console changes. Each action and its line in postbox.console_action are one transaction:
// there is no action without a line, and no line of an action that was rolled back.
//
// An action on all dead letters that match a filter is done in two steps. A preview counts them and
// gives a confirmation, which the action needs. The action takes only what was there at the time of
// the preview (failed_before), so what matches can only become less, and it is rolled back if it
// would take more than was counted. A redrive does at most kMostOfOneStep events and gives a
// confirmation for the rest.
#ifndef POSTBOX_WORKER_CLI_CONSOLE_ACTIONS_H_
#define POSTBOX_WORKER_CLI_CONSOLE_ACTIONS_H_

#include "worker/cli/console/call.h"

namespace postbox::cli {

inline constexpr int kMostOfOneStep = 500;

// {"action": "pause", "resume", "cancel" or "finish", "kind": ..., "name": ..., "reason": ...,
//  "until": ...}.
// To finish a rebuild replaces the rows of a table, which may take minutes. The answer has the
// result of postbox.finish_rebuild.
Answer ChangeState(Session* session, const JsonValue& order);
// Single events, at most kMostRows.
// {"action": "redrive" or "discard", "outbox": ..., "event_ids": [...], "reason": ...} or
// {"action": ..., "dead_letters": [id, ...], "reason": ..., "accept_hole": true}
Answer ActOnEvents(Session* session, const JsonValue& order);
// {"action": ..., "inbox": ..., "event_type": ..., "key": ..., "sqlstate": ..., "outcome": ...,
//  "reason": ..., "accept_hole": ...}; or {"action": "redrive", "outbox": ...} for all events of an
// outbox that are parked. The answer has count and confirmation.
Answer PreviewAll(Session* session, const JsonValue& order);
// {"confirmation": ...}
Answer ActOnAll(Session* session, const JsonValue& order);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_CONSOLE_ACTIONS_H_

// postbox.mute_changes: the owner of a table changes it in one transaction without events.
//
// Rule: both the role that has set it and the role that makes the change have the rights of the
// table's owner. Otherwise the change is refused: neither are events lost that another role counts
// on, nor are those emitted that are not wanted.
//
//  1. A function of the owner (SECURITY DEFINER) sets it, and returns. What its caller changes then
//     is refused. With `SET postbox.mute_changes = on` as a clause of the function it ends with the
//     function.
//  2. The owner of a table sets it, and a trigger or a function of another role changes a table of
//     that role: refused, as the setter does not own that table. So is a cascade of a foreign key
//     into a table of another role.
//  3. It was set with SET, not SET LOCAL, and the transaction is over: the next change is refused,
//     in a pooled session for example, until RESET.
//  4. A savepoint is rolled back: so is what was set after it, and what was changed is not counted.
//
// When the transaction commits, the server log says how many rows of which table were changed, and
// so does a NOTICE. A statement that has changed no row is of no concern.
#ifndef POSTBOX_EXTENSION_EMIT_MUTE_CHANGES_H_
#define POSTBOX_EXTENSION_EMIT_MUTE_CHANGES_H_

#include "extension/base/guard.h"

namespace postbox {

// Whether the change of so many rows of a table emits nothing, since the transaction is muted. If
// so, notes it. Throws insufficient_privilege or object_not_in_prerequisite_state if it is refused.
bool MuteChanges(Relation table, int64 rows);

// The same for TRUNCATE.
bool MuteTruncate(Relation table);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_EMIT_MUTE_CHANGES_H_

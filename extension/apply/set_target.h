// Whether the rows of several events may be written to a target in one statement, of which only the
// last version of a key counts (event_set.h).
//
// Rule: nothing but the rows tells it from one statement for each event. So there is nothing that
// runs, counts or judges each row that is written:
//  - no trigger, of users or of a foreign key, no rule, row security, partition or heir;
//  - no CHECK, generated column or column of a domain, no default that is new each time or runs
//    unknown code (unknown_code.h), no index but btrees on columns with operators that come with
//    the server;
//  - no column that the projection does not write and that could make a row, or an entry of an
//    index, too large;
//  - no unique index but that of the key. One statement would have to find the rows of other keys
//    as the events before have left them.
// Keys are told apart by their text (KeyForm), so they must be equal exactly if their texts are.
#ifndef POSTBOX_EXTENSION_APPLY_SET_TARGET_H_
#define POSTBOX_EXTENSION_APPLY_SET_TARGET_H_

#include "extension/apply/projection_columns.h"

namespace postbox {

bool TakesSets(Oid target, const ProjectionColumns& columns);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_SET_TARGET_H_

// Whether to write a table runs code of which it is not known what it does: triggers and rules,
// but also what stands in a DEFAULT, a CHECK, a domain or an index. Such code may change settings,
// or the rows of the inbox, between two events.
//
// What it does is known of functions of Postgres that are immutable, and of some others. It is not
// of the rest: set_config() and query_to_xml() are functions of Postgres, too.
#ifndef POSTBOX_EXTENSION_APPLY_UNKNOWN_CODE_H_
#define POSTBOX_EXTENSION_APPLY_UNKNOWN_CODE_H_

#include "extension/base/guard.h"

extern "C" {
#include <nodes/nodes.h>
}

namespace postbox {

// Inside Pg(). nullptr runs nothing.
bool RunsUnknownCode(Node* expression);

// Whether an INSERT, UPDATE or DELETE of the relation's rows does. False if it does not exist. A
// partition, and a table that has some, are looked at by themselves if that is not the whole.
enum class Whole { kYes, kNo };
bool WritingRunsUnknownCode(Oid relation, Whole whole = Whole::kYes);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_UNKNOWN_CODE_H_

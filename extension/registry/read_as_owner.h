// Functions that return rows of an outbox or an inbox, read as its owner, to callers who may read
// all of it: SELECT without row security, or operators.
#ifndef POSTBOX_EXTENSION_REGISTRY_READ_AS_OWNER_H_
#define POSTBOX_EXTENSION_REGISTRY_READ_AS_OWNER_H_

#include <initializer_list>

#include "extension/base/arguments.h"
#include "extension/base/relation.h"
#include "extension/registry/sql_as.h"

namespace postbox {

// The table that the first argument names: a publication, or an inbox.
Oid OutboxArgument(FunctionCallInfo fcinfo);
Oid InboxArgument(FunctionCallInfo fcinfo);

// Runs `sql` with the arguments of the call, of these types, and returns its rows. Throws
// insufficient_privilege if the caller may not read the table.
Datum RowsAsOwner(FunctionCallInfo fcinfo, Oid relation, const char* sql,
                  std::initializer_list<Oid> types);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_REGISTRY_READ_AS_OWNER_H_

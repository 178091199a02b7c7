// Which roles are told what is in the tables of an outbox: those with SELECT, operators, monitors.
#ifndef POSTBOX_EXTENSION_TRUST_MAY_SEE_H_
#define POSTBOX_EXTENSION_TRUST_MAY_SEE_H_

#include "extension/base/guard.h"

namespace postbox {

// Whether the caller has SELECT on the table, and row security hides none of it.
bool MayRead(Oid relation);

// Whether the caller may be told what is in these tables: with SELECT on each, without row
// security, or as an operator or monitor.
bool MaySee(std::initializer_list<Oid> tables);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_TRUST_MAY_SEE_H_

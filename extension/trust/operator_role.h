// The role postbox_operator. Its members see the status of every outbox and inbox of a database and
// may redrive and discard their events. They need no right on the tables: what they ask for is done
// as the owner of the table, in a security-restricted operation. So whatever the table calls can do
// no more than its owner.
//
// CREATE EXTENSION creates the role (sql/install/begin.sql). A superuser counts as a member.
#ifndef POSTBOX_EXTENSION_TRUST_OPERATOR_ROLE_H_
#define POSTBOX_EXTENSION_TRUST_OPERATOR_ROLE_H_

#include "extension/base/guard.h"

namespace postbox {

// Whether `role` has the rights of postbox_operator. False if that role does not exist.
bool IsOperator(Oid role);

// Whether `role` may pause, resume, redrive and cancel what belongs to an outbox or an inbox: with
// the rights of its owner, or as an operator. False if there is no such relation.
bool MayActOn(Oid relation, Oid role);
// Likewise what belongs to a role, for example a backfill.
bool MayActFor(Oid owner, Oid role);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_TRUST_OPERATOR_ROLE_H_

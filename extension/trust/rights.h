// The rights that projections and handlers need. They run as the owner of their inbox, so these are
// rights of that role.
//
// A missing right is an error of the configuration and not of the event that met it. So these
// functions throw insufficient_privilege when a projection or handler is created, and again when an
// event has failed with that code: the event is not recorded, and is delivered again until the
// right has been granted.
#ifndef POSTBOX_EXTENSION_TRUST_RIGHTS_H_
#define POSTBOX_EXTENSION_TRUST_RIGHTS_H_

#include "extension/base/guard.h"

namespace postbox {

// To write `target`, the table of a projection, and to delete from it if the projection does.
void RequireTargetRights(Oid owner, Oid target, const std::string& target_name, bool deletes);

// To call `function`, a handler.
void RequireHandlerRights(Oid owner, Oid function);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_TRUST_RIGHTS_H_

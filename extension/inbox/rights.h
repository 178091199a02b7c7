// The rights that what takes events cannot do without. Projections and handlers run as the owner of
// their inbox, so these are rights of that role.
//
// A right that is missing is a fault of the configuration and not of the event that met it. So
// these throw insufficient_privilege when a projection or handler is made, and again when an event
// has been refused with that code: the event is not recorded, but comes again until a person has
// granted the right.
#ifndef POSTBOX_EXTENSION_INBOX_RIGHTS_H_
#define POSTBOX_EXTENSION_INBOX_RIGHTS_H_

#include "extension/base/guard.h"

namespace postbox {

// To write `target`, the table of a projection, and to delete from it if the projection does.
void RequireTargetRights(Oid owner, Oid target, const std::string& target_name, bool deletes);

// To call `function`, a handler.
void RequireHandlerRights(Oid owner, Oid function);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_INBOX_RIGHTS_H_

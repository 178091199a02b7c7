// Whether a projection is being rebuilt (extension/apply/rebuild.h): until the end of that, what
// writes its target stays as it is.
#ifndef POSTBOX_EXTENSION_REGISTRY_ACTIVE_REBUILD_H_
#define POSTBOX_EXTENSION_REGISTRY_ACTIVE_REBUILD_H_

#include "extension/base/guard.h"

namespace postbox {

// Both throw object_in_use if there is an active rebuild: of the target, or with it as the shadow;
// of a target of the inbox, or with it as the inbox of the shadow. Need SPI.
void RequireNoRebuildOf(Oid target);
void RequireNoRebuildWith(Oid inbox);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_REGISTRY_ACTIVE_REBUILD_H_

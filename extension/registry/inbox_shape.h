// What an inbox consists of: by this it is created, registered and repaired.
#ifndef POSTBOX_EXTENSION_REGISTRY_INBOX_SHAPE_H_
#define POSTBOX_EXTENSION_REGISTRY_INBOX_SHAPE_H_

#include "extension/shared/table_shape.h"

namespace postbox {

TableShape InboxShape();
TableShape TombstoneShape();

// Throws invalid_parameter_value unless the interval is positive.
void CheckInboxRetention(Datum retention);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_REGISTRY_INBOX_SHAPE_H_

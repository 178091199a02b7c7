// What an inbox consists of: by this it is created, registered and repaired.
#ifndef POSTBOX_EXTENSION_REGISTRY_INBOX_SHAPE_H_
#define POSTBOX_EXTENSION_REGISTRY_INBOX_SHAPE_H_

#include "extension/shared/table_shape.h"

namespace postbox {

// An inbox and its tombstones are written to in these many generations, in turn
// (sql/install/functions/40_inbox.sql).
constexpr int kInboxGenerations = 3;

// As the columns `generation` have it.
std::string GenerationLiteral(int generation);

TableShape InboxShape();
TableShape TombstoneShape();

// Throws invalid_parameter_value unless the interval is positive.
void CheckInboxRetention(Datum retention);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_REGISTRY_INBOX_SHAPE_H_

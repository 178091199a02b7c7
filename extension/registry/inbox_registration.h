// Whether a table is registered as an inbox, and may be changed.
#ifndef POSTBOX_EXTENSION_REGISTRY_INBOX_REGISTRATION_H_
#define POSTBOX_EXTENSION_REGISTRY_INBOX_REGISTRATION_H_

#include "extension/base/guard.h"

namespace postbox {

// Throws that `relation` is no inbox, or does not exist.
[[noreturn]] void ThrowNoInbox(Oid relation);

// An error unless the current user owns the inbox. Needs SPI and FixedSearchPath.
void RequireInboxOwner(Oid relation);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_REGISTRY_INBOX_REGISTRATION_H_

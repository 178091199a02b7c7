// What postbox.republish has queued, for what ends a publication.
#ifndef POSTBOX_EXTENSION_REGISTRY_REPUBLISH_H_
#define POSTBOX_EXTENSION_REGISTRY_REPUBLISH_H_

#include <string>

#include "extension/base/guard.h"

namespace postbox {

// Takes back what is queued and not sent yet, as the owner of the outbox. Returns how many events.
// Until the end of the transaction the publication is locked, so nothing more is queued. The caller
// has checked the rights. Needs SPI and FixedSearchPath.
int64 TakeBackRepublished(const std::string& publication, Oid owner);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_REGISTRY_REPUBLISH_H_

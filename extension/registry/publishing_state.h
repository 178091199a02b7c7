// What shared memory says about the publishing of this database.
#ifndef POSTBOX_EXTENSION_REGISTRY_PUBLISHING_STATE_H_
#define POSTBOX_EXTENSION_REGISTRY_PUBLISHING_STATE_H_

#include "extension/base/postgres.h"

namespace postbox {

// The last error of a publication that a worker tries again and again because nothing answers;
// nothing if none does. An error may show data of events: it is not shown to every role.
std::optional<std::string> RetryError(const std::string& publication);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_REGISTRY_PUBLISHING_STATE_H_

// The names that users give: of what is registered, and of what there is in Pub/Sub.
#ifndef POSTBOX_EXTENSION_REGISTRY_REGISTERED_NAMES_H_
#define POSTBOX_EXTENSION_REGISTRY_REGISTERED_NAMES_H_

#include "extension/base/guard.h"

namespace postbox {

// Throws invalid_name unless it is the length of a name. `kind`: publication, for example.
void CheckRegisteredName(const char* kind, const std::string& name);
// Throws undefined_object. `kind`: that of a table of postbox, which lists the names.
[[noreturn]] void ThrowUnknownName(const char* kind, const std::string& name);

// These throw invalid_name where Pub/Sub would refuse the name, and warn where it does not follow
// the convention.
void CheckTopic(const std::string& topic);
void CheckSubscription(const std::string& subscription);

// To the client only: a reader of the server log cannot do anything about it, and a test suite
// that creates publications would fill it.
void WarnClient(const std::string& message, const char* hint);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_REGISTRY_REGISTERED_NAMES_H_

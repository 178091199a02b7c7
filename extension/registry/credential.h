// Who may name a credential. The credentials themselves: credential.cc.
#ifndef POSTBOX_EXTENSION_REGISTRY_CREDENTIAL_H_
#define POSTBOX_EXTENSION_REGISTRY_CREDENTIAL_H_

#include "extension/base/guard.h"

namespace postbox {

// Throws unless there is a credential of that name, and the current user is a superuser or was
// granted it. Needs SPI.
void RequireCredential(const std::string& name);

// Locks it against alter_credential and drop_credential until the end of the transaction, acting as
// the owner of postbox.credential, and returns its kind. Throws undefined_object if it was just
// dropped. Needs SPI.
std::string LockCredential(const std::string& name);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_REGISTRY_CREDENTIAL_H_

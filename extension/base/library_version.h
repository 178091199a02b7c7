// The version of this library, and that of the SQL objects of the extension in this database. They
// differ after new files were installed, until ALTER EXTENSION postbox UPDATE has run.
#ifndef POSTBOX_EXTENSION_BASE_LIBRARY_VERSION_H_
#define POSTBOX_EXTENSION_BASE_LIBRARY_VERSION_H_

namespace postbox {

// For example "0.2.0".
const char* LibraryVersion();

// Throws object_not_in_prerequisite_state if the SQL objects are older than this library. Needs
// SPI.
void RequireUpdatedExtension();

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_BASE_LIBRARY_VERSION_H_

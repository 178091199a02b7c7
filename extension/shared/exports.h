// What postbox.so shows to postbox_worker.so: one struct behind a rendezvous variable of the
// server. The two modules are loaded with RTLD_LOCAL and hidden symbols, so they cannot link to
// each other. _PG_init of postbox.so sets the variable. In a worker process postbox.so is always
// loaded, because only a preloaded postbox.so starts workers.
#ifndef POSTBOX_EXTENSION_SHARED_EXPORTS_H_
#define POSTBOX_EXTENSION_SHARED_EXPORTS_H_

#include "extension/base/library_version.h"
#include "extension/base/postgres.h"
#include "extension/shared/settings.h"

namespace postbox {

struct Exports {
  size_t settings_size;  // sizeof(Settings): another build of the same version may have another one
  const Settings* settings;
};

// The variable of this process; *variable is nullptr when no postbox.so of this version is loaded.
inline Exports** ExportsVariable() {
  char name[64];
  snprintf(name, sizeof name, "postbox %s", LibraryVersion());
  return reinterpret_cast<Exports**>(find_rendezvous_variable(name));
}

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_SHARED_EXPORTS_H_

// What postbox.so shows to postbox_worker.so: one struct behind a rendezvous variable of the
// server. The two modules are loaded with RTLD_LOCAL and hidden symbols, so they cannot link to
// each other. _PG_init of postbox.so sets the variable. In a worker process postbox.so is always
// loaded, because only a preloaded postbox.so starts workers.
#ifndef POSTBOX_EXTENSION_SHARED_EXPORTS_H_
#define POSTBOX_EXTENSION_SHARED_EXPORTS_H_

#include "extension/base/postgres.h"
#include "extension/shared/settings.h"

namespace postbox {

inline constexpr char kRendezvousName[] = "postbox";

struct Exports {
  size_t settings_size;  // sizeof(Settings): a module of another release has another one
  const Settings* settings;
};

// The variable of this process; *variable is nullptr when postbox.so is not loaded.
inline Exports** ExportsVariable() {
  return reinterpret_cast<Exports**>(find_rendezvous_variable(kRendezvousName));
}

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_SHARED_EXPORTS_H_

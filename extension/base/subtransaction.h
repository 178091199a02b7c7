// Running C++ in a subtransaction of PostgreSQL.
#ifndef POSTBOX_EXTENSION_BASE_SUBTRANSACTION_H_
#define POSTBOX_EXTENSION_BASE_SUBTRANSACTION_H_

#include "extension/base/guard.h"

namespace postbox {

// Runs `f` in a subtransaction. An exception out of `f` rolls it back and goes on to the caller,
// who may then catch a PostgresError and carry on.
template <class F>
void InSubtransaction(F&& f) {
  MemoryContext context = CurrentMemoryContext;
  ResourceOwner owner = CurrentResourceOwner;
  const auto restore = [&] {
    MemoryContextSwitchTo(context);
    CurrentResourceOwner = owner;
  };
  Pg([] { BeginInternalSubTransaction(nullptr); });
  MemoryContextSwitchTo(context);
  try {
    f();
    Pg([] { ReleaseCurrentSubTransaction(); });
  } catch (...) {
    Pg([] { RollbackAndReleaseCurrentSubTransaction(); });
    restore();
    throw;
  }
  restore();
}

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_BASE_SUBTRANSACTION_H_

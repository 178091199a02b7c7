#include "extension/base/library_version.h"

#include "extension/base/spi.h"

namespace postbox {

const char* LibraryVersion() { return POSTBOX_VERSION; }

void RequireUpdatedExtension() {
  Parameters library;
  library.AddText(LibraryVersion());
  if (Run("SELECT extversion FROM pg_catalog.pg_extension "
          "WHERE extname OPERATOR(pg_catalog.=) 'postbox' "
          "AND extversion OPERATOR(pg_catalog.~) '^[0-9]+([.][0-9]+)*$' "
          "AND pg_catalog.string_to_array(extversion, '.')::int[] OPERATOR(pg_catalog.<) "
          "pg_catalog.string_to_array($1, '.')::int[]",
          library) == 0) {
    return;
  }
  Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        "extension postbox has version " + TextColumn(0, 1) +
            ", the installed library has version " + LibraryVersion(),
        "The versions must match. Until then nothing is published.",
        "Run ALTER EXTENSION postbox UPDATE in this database.");
}

}  // namespace postbox

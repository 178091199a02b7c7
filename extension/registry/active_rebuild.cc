#include "extension/registry/active_rebuild.h"

#include "extension/base/spi.h"
#include "extension/trust/registrar.h"

namespace postbox {
namespace {

void RequireNone(const std::string& condition, Oid relation) {
  const Registrar registrar("rebuild");
  Parameters key;
  key.AddOid(REGCLASSOID, relation);
  if (Run("SELECT r.projection, format('SELECT postbox.cancel_rebuild(%L)', r.projection) "
          "FROM postbox.rebuild r WHERE r.state = 'active' AND " +
              condition + " LIMIT 1",
          key) == 0) {
    return;
  }
  Throw(ERRCODE_OBJECT_IN_USE, "projection \"" + TextColumn(0, 1) + "\" is being rebuilt",
        "What writes its target stays as it was when the rebuild began.",
        "Wait for the end of the rebuild, or run " + TextColumn(0, 2) + ".");
}

}  // namespace

void RequireNoRebuildOf(Oid target) { RequireNone("$1 IN (r.target, r.shadow)", target); }
void RequireNoRebuildWith(Oid inbox) { RequireNone("$1 IN (r.inbox, r.shadow_inbox)", inbox); }

}  // namespace postbox

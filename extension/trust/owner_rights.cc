#include "extension/trust/owner_rights.h"

namespace postbox {

OwnerRights::OwnerRights(Oid owner)
    : act_as_(owner, owner == GetUserId() ? Trust::kTrusted : Trust::kRestricted) {
  // The end of act_as_ takes it back.
  Pg([] {
    set_config_option("row_security", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0,
                      false);
  });
}

}  // namespace postbox

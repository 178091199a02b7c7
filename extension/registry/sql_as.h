// SQL about a table of a user, as the owner of the table.
#ifndef POSTBOX_EXTENSION_REGISTRY_SQL_AS_H_
#define POSTBOX_EXTENSION_REGISTRY_SQL_AS_H_

#include <optional>

#include "extension/base/spi.h"
#include "extension/trust/act_as.h"

namespace postbox {

// SPI, under a fixed search_path, as `role`; or as the caller if there is none.
class SqlAs {
 public:
  explicit SqlAs(std::optional<Oid> role) {
    if (role.has_value()) role_.emplace(*role, TrustIn(*role));
  }

 private:
  SpiConnection connection_;
  FixedSearchPath search_path_;
  std::optional<ActAs> role_;
};

inline bool IsThere(Oid relation) {
  return OidIsValid(relation) &&
         Pg([&] { return SearchSysCacheExists1(RELOID, ObjectIdGetDatum(relation)); });
}

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_REGISTRY_SQL_AS_H_

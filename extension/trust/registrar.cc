#include "extension/trust/registrar.h"

#include "extension/base/spi.h"

namespace postbox {

void LockRegistration(const char* registry, Oid relation) {
  const Registrar registrar(registry);
  Parameters key;
  key.AddOid(REGCLASSOID, relation);
  const std::string sql = std::string("SELECT FROM postbox.") + registry +
                          " WHERE relation OPERATOR(pg_catalog.=) $1 FOR UPDATE";
  if (Run(sql, key) != 0) return;
  Throw(ERRCODE_UNDEFINED_TABLE,
        std::string(registry) + " with OID " + std::to_string(relation) + " does not exist",
        "It was dropped concurrently.");
}

}  // namespace postbox

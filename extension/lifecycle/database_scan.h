// The databases in which a worker could run, from pg_database. That is all that the launcher reads
// of the catalogs: it is connected to no database.
#ifndef POSTBOX_EXTENSION_LIFECYCLE_DATABASE_SCAN_H_
#define POSTBOX_EXTENSION_LIFECYCLE_DATABASE_SCAN_H_

#include "extension/base/postgres.h"

namespace postbox {

struct ListedDatabase {
  Oid oid;
  std::string name;
};

// Those that allow connections and are no template, in a separate transaction.
std::vector<ListedDatabase> ListDatabases();

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_LIFECYCLE_DATABASE_SCAN_H_

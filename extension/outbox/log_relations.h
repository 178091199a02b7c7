// Making the tables of an outbox of kind `log`.
#ifndef POSTBOX_EXTENSION_OUTBOX_LOG_RELATIONS_H_
#define POSTBOX_EXTENSION_OUTBOX_LOG_RELATIONS_H_

#include "extension/base/new_relation.h"

namespace postbox {

// Creates, as the current user: the append-only partitioned table with its default partition, its
// sequence and indexes, and <name>_parked for events that could not be published. The partitions
// of today come from postbox.add_partitions once the outbox is registered. Needs SPI and
// FixedSearchPath.
void CreateLogTables(const NewRelation& relation);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_OUTBOX_LOG_RELATIONS_H_

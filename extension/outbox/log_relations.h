// The DDL of an outbox of kind `log`: an append-only, partitioned table. No row is ever updated.
//
// What a worker relies on when it reads a row (worker/publisher/base/log_position_logic.h):
//
//  - txid comes before seq in the row: defaults are evaluated in this order, so the transaction id
//    is assigned before the sequence number is taken, for a plain INSERT and for COPY as well.
//  - The sequence has CACHE 1: a greater seq was taken later.
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

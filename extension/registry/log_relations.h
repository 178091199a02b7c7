// The DDL of an outbox of kind `log`: an append-only, partitioned table. No row is ever updated.
//
// What a worker relies on when it reads a row (worker/publisher/store/log_position_logic.h):
//
//  - The transaction id is assigned before the sequence number is taken: by outbox_emit, and for a
//    plain INSERT or COPY by the trigger of the partition (stamp.h).
//  - The sequence has CACHE 1: a greater seq was taken later.
//
// The column generation says which partition a row lies in, and so when it is purged: by default it
// follows from the time at which the transaction began (sql/install/functions/35_log_outbox.sql).
// The id is unique within a generation. outbox_emit sees to it that an id which its caller gave, or
// which is derived from a source, is unique in the whole log.
#ifndef POSTBOX_EXTENSION_REGISTRY_LOG_RELATIONS_H_
#define POSTBOX_EXTENSION_REGISTRY_LOG_RELATIONS_H_

#include "extension/base/new_relation.h"
#include "extension/shared/table_shape.h"

namespace postbox {

constexpr int kLogGenerations = 6;

// The generation of a moment, of a log whose generations are written to for `span` seconds each.
int16 GenerationOf(TimestampTz moment, int64 span);

// The origin of rows of other clusters that have been settled (foreign_events.cc).
constexpr int32 kSettledOrigin = PG_INT32_MIN;
// The origin of rows that logical replication has brought (replicated.cc).
constexpr int32 kReplicatedOrigin = PG_INT32_MAX;

// The number by which rows tell a cluster from others, made from its system identifier; and that of
// this cluster.
int32 OriginOf(uint64 system_identifier);
int32 ClusterOrigin();

// The columns that an event has in every table that Postbox makes for it.
std::vector<ColumnShape> EventColumnShapes();

// The log itself. `generation` is the default of the column generation; `sequence` is quoted and
// qualified. And the table of its parked events.
TableShape LogShape(const std::string& generation, const std::string& sequence);
TableShape ParkedShape();

// The sequence of a log, quoted and qualified; without its place in the table.
void CreateSequence(const std::string& sequence, int64 start);

// Puts the triggers of a table of an outbox on it: the one that notices what logical replication
// brings (replicated.cc), and those of the partitions of a log (stamp.cc). `kind` is log, table or
// parked. Needs SPI.
std::string TriggersStatement(const std::string& table, const char* kind);

// Creates, as the current user: the append-only partitioned table, its sequence and indexes, and
// <name>_parked for events that could not be published. The partitions come from
// MakePartitions once the outbox is registered. `retention` is an interval or NULL. Needs
// SPI and FixedSearchPath.
void CreateLogTables(const NewRelation& relation, const NullableDatum& retention);

// Makes the partitions of a registered log that are missing, as its owner. Needs SPI.
void MakePartitions(Oid log);

// A partition of a log of which the trigger does not stamp each row that is inserted: it was
// dropped, disabled or altered. InvalidOid if there is none. For inside Pg().
Oid UnstampedPartition(Oid log);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_REGISTRY_LOG_RELATIONS_H_

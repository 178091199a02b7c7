#include "extension/apply/inbox_tables.h"

#include "extension/base/relation.h"
#include "extension/registry/generations.h"
#include "extension/registry/inbox_shape.h"

extern "C" {
#include <catalog/partition.h>
}

namespace postbox {
namespace {

constexpr char kRepair[] = "Its owner can run SELECT * FROM postbox.repair_inbox.";

[[noreturn]] void ThrowIncomplete(const std::string& inbox, const std::string& detail) {
  Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, "inbox \"" + inbox + "\" is incomplete", detail,
        kRepair);
}

struct Column {
  const char* name;
  Oid type;
};

AttrNumber Resolve(Oid relation, const std::string& inbox, const Column& column) {
  const std::string table = RelationName(relation);
  Parameters key;
  key.AddOid(REGCLASSOID, relation).AddText(column.name);
  if (Run("SELECT a.attnum::int4, a.atttypid, pg_catalog.format_type(a.atttypid, NULL), "
          "pg_catalog.format_type($3, NULL) FROM pg_catalog.pg_attribute a "
          "WHERE a.attrelid = $1 AND a.attname = $2 AND NOT a.attisdropped",
          key.AddOid(OIDOID, column.type)) == 0) {
    ThrowIncomplete(inbox, "Table " + table + " has no column \"" + column.name + "\".");
  }
  if (OidColumn(0, 2) != column.type) {
    Throw(ERRCODE_DATATYPE_MISMATCH,
          std::string("column \"") + column.name + "\" of table " + table + " is of type " +
              TextColumn(0, 3) + ", not " + TextColumn(0, 4),
          "The table belongs to inbox \"" + inbox + "\".", "Change it back with ALTER TABLE.");
  }
  return static_cast<AttrNumber>(Int32Column(0, 1));
}

std::vector<Oid> RequirePartitions(Oid relation, const std::string& inbox,
                                   const std::string& table) {
  std::vector<Oid> partitions = GenerationPartitions(relation, kInboxGenerations);
  for (size_t i = 0; i < partitions.size(); ++i) {
    if (!OidIsValid(partitions[i])) {
      ThrowIncomplete(
          inbox, "Table " + table + " has no partition for generation " + std::to_string(i) + ".");
    }
    // What has partitions itself has no rows that seen_ids.h and dirty_find.h would find.
    if (Pg([&] { return get_rel_relkind(partitions[i]); }) == RELKIND_RELATION) continue;
    ThrowIncomplete(inbox, "Partition " + RelationName(partitions[i]) + " of table " + table +
                               " is not an ordinary table.");
  }
  return partitions;
}

// Inside Pg().
Oid IndexOf(Oid partition, Oid index_of_parent) {
  Relation opened = relation_open(partition, AccessShareLock);
  const Oid index = index_get_partition(opened, index_of_parent);
  relation_close(opened, AccessShareLock);
  return index;
}

// Inside Pg(). The types of columns are those of the parent, their numbers may be others.
TombstonePartition PartitionOf(Oid partition, Oid index_of_parent) {
  TombstonePartition found;
  found.relation = partition;
  found.index = IndexOf(partition, index_of_parent);
  found.target = get_attnum(partition, "target");
  found.key = get_attnum(partition, "key");
  found.generation = get_attnum(partition, "generation");
  found.version = get_attnum(partition, "version");
  return found;
}

}  // namespace

TombstoneTable ResolveTombstones(Oid relation, const std::string& inbox) {
  TombstoneTable table;
  table.relation = relation;
  table.name = RelationName(relation);
  if (table.name.empty()) ThrowIncomplete(inbox, "Its table of tombstones has been dropped.");
  constexpr Column kColumns[] = {
      {"target", REGCLASSOID}, {"key", TEXTOID}, {"generation", INT2OID}, {"version", INT8OID}};
  AttrNumber numbers[4];
  for (size_t i = 0; i < 4; ++i) numbers[i] = Resolve(relation, inbox, kColumns[i]);

  Parameters key;
  key.AddOid(REGCLASSOID, relation).AddInt(numbers[0]).AddInt(numbers[1]).AddInt(numbers[2]);
  if (Run("SELECT x.indexrelid FROM pg_catalog.pg_index x WHERE x.indrelid = $1 AND x.indisprimary "
          "AND x.indimmediate AND x.indnkeyatts = 3 "
          "AND ARRAY[$2, $3, $4] <@ ARRAY[x.indkey[0], x.indkey[1], x.indkey[2]]::int4[]",
          key) == 0) {
    ThrowIncomplete(
        inbox, "The primary key of " + table.name + " is no longer (target, key, generation).");
  }
  const Oid index = OidColumn(0, 1);
  for (const Oid partition : RequirePartitions(relation, inbox, table.name)) {
    table.generations.push_back(Pg([&] { return PartitionOf(partition, index); }));
  }
  return table;
}

std::vector<InboxPartition> CheckInboxTable(Oid relation, const std::string& inbox) {
  Parameters key;
  key.AddOid(REGCLASSOID, relation).AddInt(Resolve(relation, inbox, {"event_id", UUIDOID}));
  key.AddInt(Resolve(relation, inbox, {"generation", INT2OID}));
  if (Run("SELECT x.indexrelid FROM pg_catalog.pg_index x WHERE x.indrelid = $1 AND x.indisunique "
          "AND x.indimmediate AND x.indisvalid AND x.indnkeyatts = 2 AND x.indkey[0] = $2 "
          "AND x.indkey[1] = $3 AND x.indpred IS NULL ORDER BY x.indisprimary DESC LIMIT 1",
          key) == 0) {
    ThrowIncomplete(inbox, "Table " + inbox + " has no unique index on (event_id, generation).");
  }
  const Oid index = OidColumn(0, 1);
  std::vector<InboxPartition> partitions;
  for (const Oid partition : RequirePartitions(relation, inbox, inbox)) {
    partitions.push_back({partition, Pg([&] { return IndexOf(partition, index); })});
  }
  return partitions;
}

}  // namespace postbox

#include "extension/apply/inbox_tables.h"

#include "extension/base/relation.h"

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

}  // namespace

TombstoneTable ResolveTombstones(Oid relation, const std::string& inbox) {
  TombstoneTable table;
  table.relation = relation;
  table.name = RelationName(relation);
  if (table.name.empty()) ThrowIncomplete(inbox, "Its table of tombstones has been dropped.");
  table.target = Resolve(relation, inbox, {"target", REGCLASSOID});
  table.key = Resolve(relation, inbox, {"key", TEXTOID});
  table.version = Resolve(relation, inbox, {"version", INT8OID});

  Parameters key;
  key.AddOid(REGCLASSOID, relation).AddInt(table.target).AddInt(table.key);
  if (Run("SELECT x.indexrelid FROM pg_catalog.pg_index x WHERE x.indrelid = $1 AND x.indisprimary "
          "AND x.indimmediate AND x.indnkeyatts = 2 "
          "AND ARRAY[x.indkey[0], x.indkey[1]]::int4[] IN (ARRAY[$2, $3], ARRAY[$3, $2])",
          key) == 0) {
    ThrowIncomplete(inbox, "The primary key of " + table.name + " is no longer (target, key).");
  }
  table.index = OidColumn(0, 1);
  return table;
}

void CheckInboxTable(Oid relation, const std::string& inbox) {
  Resolve(relation, inbox, {"event_id", UUIDOID});
}

}  // namespace postbox

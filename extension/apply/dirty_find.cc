#include "extension/apply/dirty_find.h"

extern "C" {
#include <access/tableam.h>
#include <executor/executor.h>
#include <storage/bufmgr.h>
#include <storage/lmgr.h>
}

namespace postbox {
namespace {

// Inside Pg().
void RequireType(Relation relation, AttrNumber number, Oid type) {
  TupleDesc descriptor = RelationGetDescr(relation);
  if (number <= descriptor->natts) {
    Form_pg_attribute attribute = TupleDescAttr(descriptor, number - 1);
    if (!attribute->attisdropped && attribute->atttypid == type) return;
  }
  ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
                  errmsg("columns of table \"%s\" have changed while events were applied",
                         RelationGetRelationName(relation)),
                  errdetail("A trigger or a handler has altered the table.")));
}

// Inside Pg().
Relation OpenSearched(Oid relation_oid, Oid index, std::span<const SearchColumn> columns,
                      const VersionColumn& version) {
  Relation relation = try_relation_open(relation_oid, RowExclusiveLock);
  if (relation == nullptr || get_rel_relkind(index) == '\0') {
    ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE),
                    errmsg("a table or its primary key was dropped while events were applied"),
                    errdetail("A trigger or a handler has dropped it.")));
  }
  for (const SearchColumn& column : columns) RequireType(relation, column.number, column.type);
  RequireType(relation, version.number, version.type);
  return relation;
}

// Inside Pg().
int64 VersionOf(TupleTableSlot* row, const VersionColumn& version) {
  bool null;
  const Datum value = slot_getattr(row, version.number, &null);
  if (null) return 0;
  return version.type == INT4OID ? DatumGetInt32(value) : DatumGetInt64(value);
}

}  // namespace

bool DirtyFind(Oid relation_oid, Oid index, std::span<const SearchColumn> columns,
               const VersionColumn& version, int64* found) {
  return Pg([&] {
    Relation relation = OpenSearched(relation_oid, index, columns, version);
    if (RelationGetNumberOfBlocks(relation) == 0) {
      table_close(relation, NoLock);
      return false;
    }
    TupleTableSlot* search = MakeSingleTupleTableSlot(RelationGetDescr(relation), &TTSOpsVirtual);
    TupleTableSlot* row = table_slot_create(relation, nullptr);
    ExecClearTuple(search);
    std::memset(search->tts_isnull, true, RelationGetDescr(relation)->natts * sizeof(bool));
    for (const SearchColumn& column : columns) {
      search->tts_values[column.number - 1] = column.value;
      search->tts_isnull[column.number - 1] = false;
    }
    ExecStoreVirtualTuple(search);
    const bool there = POSTBOX_FIND_BY_INDEX(relation, index, LockTupleExclusive, search, row);
    if (there) *found = VersionOf(row, version);
    ExecDropSingleTupleTableSlot(row);
    ExecDropSingleTupleTableSlot(search);
    table_close(relation, NoLock);
    return there;
  });
}

}  // namespace postbox

#include "extension/apply/seen_ids.h"

extern "C" {
#include <access/genam.h>
#include <access/relation.h>
#include <access/tableam.h>
#include <catalog/pg_index.h>
#include <executor/tuptable.h>
#include <storage/bufmgr.h>
#include <utils/fmgroids.h>
#include <utils/snapmgr.h>
}

namespace postbox {
namespace {

// From this many on, the greatest id is looked up first.
constexpr size_t kMany = 8;

// Inside Pg(). Whether there is a row; `greatest` becomes the greatest id if that is known.
bool FindGreatest(IndexScanDesc scan, TupleTableSlot* row, pg_uuid_t* greatest) {
  index_rescan(scan, nullptr, 0, nullptr, 0);
  // The owner may have replaced the primary key by a unique index in descending order.
  const bool descends = (scan->indexRelation->rd_indoption[0] & INDOPTION_DESC) != 0;
  const ScanDirection from_end = descends ? ForwardScanDirection : BackwardScanDirection;
  if (!index_getnext_slot(scan, from_end, row)) return false;
  bool null = true;
  const AttrNumber column = scan->indexRelation->rd_index->indkey.values[0];
  const Datum id = slot_getattr(row, column, &null);
  // The owner may have permitted NULL, which may come last.
  if (!null) *greatest = *DatumGetUUIDP(id);
  return true;
}

// Inside Pg(). Sets found[i] for each id that there is.
void Look(Relation relation, Relation index, std::span<const pg_uuid_t* const> ids, bool* found) {
  // With what this transaction has changed, also where its snapshot is older.
  PushCopiedSnapshot(GetTransactionSnapshot());
  UpdateActiveSnapshotCommandId();
  TupleTableSlot* row = table_slot_create(relation, nullptr);
  pg_uuid_t greatest;
  std::memset(&greatest, 0xFF, sizeof greatest);
  bool any = true;
  if (ids.size() >= kMany) {
    IndexScanDesc last = POSTBOX_BEGIN_INDEX_SCAN(relation, index, GetActiveSnapshot(), 0);
    any = FindGreatest(last, row, &greatest);
    index_endscan(last);
  }
  IndexScanDesc scan = POSTBOX_BEGIN_INDEX_SCAN(relation, index, GetActiveSnapshot(), 1);
  for (size_t i = 0; any && i < ids.size(); ++i) {
    if (std::memcmp(ids[i]->data, greatest.data, UUID_LEN) > 0) continue;
    ScanKeyData key;
    ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_UUID_EQ, UUIDPGetDatum(ids[i]));
    index_rescan(scan, &key, 1, nullptr, 0);
    found[i] = index_getnext_slot(scan, ForwardScanDirection, row);
  }
  ExecDropSingleTupleTableSlot(row);
  index_endscan(scan);
  PopActiveSnapshot();
}

}  // namespace

void FindSeen(const InboxPartition& partition, std::span<const pg_uuid_t* const> ids,
              std::vector<bool>* seen) {
  Pg([&] {
    Relation relation = try_relation_open(partition.relation, AccessShareLock);
    if (relation == nullptr || get_rel_relkind(partition.index) == '\0') {
      ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE),
                      errmsg("a partition of an inbox was dropped while events were applied"),
                      errdetail("A trigger or a handler has dropped it.")));
    }
    if (RelationGetNumberOfBlocks(relation) > 0) {
      Relation index = index_open(partition.index, AccessShareLock);
      if (TupleDescAttr(RelationGetDescr(index), 0)->atttypid != UUIDOID) {
        ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
                        errmsg("columns of table \"%s\" have changed while events were applied",
                               RelationGetRelationName(relation)),
                        errdetail("A trigger or a handler has altered the table.")));
      }
      auto* found = static_cast<bool*>(palloc0(ids.size() * sizeof(bool)));
      Look(relation, index, ids, found);
      for (size_t i = 0; i < ids.size(); ++i) {
        if (found[i]) (*seen)[i] = true;
      }
      pfree(found);
      index_close(index, NoLock);
    }
    relation_close(relation, NoLock);
  });
}

}  // namespace postbox

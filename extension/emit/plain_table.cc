#include "extension/emit/plain_table.h"

extern "C" {
#include <access/heapam.h>
#include <access/nbtree.h>
#include <access/tableam.h>
#include <catalog/index.h>
#include <catalog/partition.h>
#include <catalog/pg_am.h>
#include <catalog/pg_collation.h>
#include <catalog/pg_opfamily.h>
#include <commands/trigger.h>
#include <executor/executor.h>
#include <executor/tuptable.h>
#include <nodes/primnodes.h>
#include <partitioning/partbounds.h>
#include <partitioning/partdesc.h>
#include <storage/lmgr.h>
#include <utils/fmgroids.h>
#include <utils/partcache.h>
}

namespace postbox {
namespace {

constexpr std::array<PlainColumn, 3> kCounterColumns = {
    {{"aggregate_type", TEXTOID}, {"aggregate_id", TEXTOID}, {"version", INT8OID}}};

constexpr std::array<PlainColumn, 13> kLogColumns = {{{"txid", XID8OID},
                                                      {"seq", INT8OID},
                                                      {"id", UUIDOID},
                                                      {"aggregate_type", TEXTOID},
                                                      {"aggregate_id", TEXTOID},
                                                      {"event_type", TEXTOID},
                                                      {"version", INT8OID},
                                                      {"schema_version", TEXTOID},
                                                      {"payload", BYTEAOID},
                                                      {"attributes", JSONBOID},
                                                      {"occurred_at", TIMESTAMPTZOID},
                                                      {"origin", INT4OID},
                                                      {"generation", INT2OID}}};
constexpr size_t kMostColumns = kLogColumns.size();
constexpr int kGenerationColumn = 13;
constexpr const char* kPositiveColumn = "version";

// Whether no trigger would fire in this session but those of a function. Those of replicated events
// do not.
bool FiresNothing(Relation relation, Oid function) {
  const TriggerDesc* triggers = relation->trigdesc;
  if (!relation->rd_rel->relhastriggers || triggers == nullptr) return true;
  const char other = SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA
                         ? TRIGGER_FIRES_ON_REPLICA
                         : TRIGGER_FIRES_ON_ORIGIN;
  return std::none_of(
      triggers->triggers, triggers->triggers + triggers->numtriggers, [&](const Trigger& trigger) {
        return trigger.tgfoid != function &&
               (trigger.tgenabled == other || trigger.tgenabled == TRIGGER_FIRES_ALWAYS);
      });
}

// Whether writing fires nothing but triggers of this function, and is filtered by nothing.
bool HasNoCode(Relation relation, Oid trigger) {
  // relhasrules is set until the next VACUUM, even if there is no rule any more.
  return FiresNothing(relation, trigger) && relation->rd_rules == nullptr &&
         !relation->rd_rel->relrowsecurity;
}

// Whether a CHECK is `column > 0`.
bool IsGreaterThanZero(const char* condition, int column) {
  constexpr Oid kInt8GreaterThanInt4 = 419;
  const Node* node = static_cast<Node*>(stringToNode(condition));
  if (!IsA(node, OpExpr)) return false;
  const auto* greater = reinterpret_cast<const OpExpr*>(node);
  if (greater->opno != kInt8GreaterThanInt4 || list_length(greater->args) != 2) return false;
  const auto* left = static_cast<const Node*>(linitial(greater->args));
  const auto* right = static_cast<const Node*>(lsecond(greater->args));
  if (!IsA(left, Var) || !IsA(right, Const)) return false;
  const auto* zero = reinterpret_cast<const Const*>(right);
  return reinterpret_cast<const Var*>(left)->varattno == column && !zero->constisnull &&
         DatumGetInt32(zero->constvalue) == 0;
}

// The same, remembering the text of conditions that are: to read a text takes longer than the rest.
bool IsPositiveCheck(const char* condition, int column) {
  struct Known {
    char* condition;
    int column;
  };
  static std::array<Known, 4> known{};
  static size_t next = 0;
  for (const Known& one : known) {
    if (one.column == column && std::strcmp(one.condition, condition) == 0) return true;
  }
  if (!IsGreaterThanZero(condition, column)) return false;
  char* copy = MemoryContextStrdup(TopMemoryContext, condition);
  if (known[next].condition != nullptr) pfree(known[next].condition);
  known[next] = {copy, column};
  next = (next + 1) % known.size();
  return true;
}

bool HasColumns(TupleDesc actual, std::span<const PlainColumn> columns, const char* positive) {
  if (actual->natts != static_cast<int>(columns.size())) return false;
  int positive_column = 0;
  for (int i = 0; i < actual->natts; ++i) {
    const FormData_pg_attribute* column = TupleDescAttr(actual, i);
    // A statement would round to the precision of a timestamptz(0), for example.
    if (column->attisdropped || column->attgenerated != '\0' ||
        column->attidentity == ATTRIBUTE_IDENTITY_ALWAYS || column->atttypid != columns[i].type ||
        column->atttypmod >= 0 || std::strcmp(NameStr(column->attname), columns[i].name) != 0) {
      return false;
    }
    if (positive != nullptr && std::strcmp(columns[i].name, positive) == 0) {
      positive_column = i + 1;
    }
  }
  const TupleConstr* constraints = actual->constr;
  if (constraints == nullptr || constraints->num_check == 0) return true;
  return positive_column > 0 && constraints->num_check == 1 &&
         IsPositiveCheck(constraints->check[0].ccbin, positive_column);
}

// Whether an entry of the index needs nothing but columns of the row.
bool IsPlainIndex(Relation index) {
  const FormData_pg_index& form = *index->rd_index;
  return index->rd_rel->relam == BTREE_AM_OID && form.indisready && !form.indisexclusion &&
         (!form.indisunique || form.indimmediate) &&
         heap_attisnull(index->rd_indextuple, Anum_pg_index_indexprs, nullptr) &&
         heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, nullptr);
}

// Whether a scan of the index finds every row that the transaction sees. An index that was made
// over rows in a HOT chain lacks versions that only older transactions see.
bool IsCompleteIndex(Relation index) {
  return index->rd_index->indisvalid &&
         (!index->rd_index->indcheckxmin ||
          TransactionIdPrecedes(HeapTupleHeaderGetXmin(index->rd_indextuple->t_data),
                                TransactionXmin));
}

// Whether the index finds the row of an aggregate as a statement would.
bool IsCounterKey(Relation counter, Relation index) {
  const FormData_pg_index& form = *index->rd_index;
  if (!form.indisunique || form.indnkeyatts != 2 || form.indnatts != 2) return false;
  for (int i = 0; i < 2; ++i) {
    if (form.indkey.values[i] != i + 1 || index->rd_opfamily[i] != TEXT_BTREE_FAM_OID ||
        index->rd_indcollation[i] != TupleDescAttr(RelationGetDescr(counter), i)->attcollation) {
      return false;
    }
  }
  return IsCompleteIndex(index);
}

HeapTuple FormRow(const PlainTable* table, const Datum* values) {
  const bool nulls[kMostColumns] = {};
  HeapTuple row = heap_form_tuple(RelationGetDescr(table->relation), const_cast<Datum*>(values),
                                  const_cast<bool*>(nulls));
  row->t_tableOid = RelationGetRelid(table->relation);
  return row;
}

// Adds the entry of a row of the heap to one of the indexes, which are plain: btree wants no more
// of an IndexInfo than that there is one. To make one takes a fifth of the time of an entry.
bool AddIndexEntry(const PlainTable* table, Relation index, const Datum* row, ItemPointer place,
                   IndexUniqueCheck check, bool unchanged) {
  static IndexInfo info{.type = T_IndexInfo};
  const FormData_pg_index& form = *index->rd_index;
  Datum values[INDEX_MAX_KEYS];
  bool nulls[INDEX_MAX_KEYS];
  for (int i = 0; i < form.indnatts; ++i) {
    values[i] = row[form.indkey.values[i] - 1];
    nulls[i] = false;
  }
  return index_insert(index, values, nulls, place, table->relation, check, unchanged, &info);
}

void AddIndexEntries(const PlainTable* table, const Datum* row, ItemPointer place, bool unchanged) {
  for (int i = 0; i < table->indexes; ++i) {
    Relation index = table->index[i];
    AddIndexEntry(table, index, row, place,
                  index->rd_index->indisunique ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO, unchanged);
  }
}

// The partition for a generation, or InvalidOid.
Oid PartitionOf(Relation log, int16 generation) {
  const PartitionKey key = RelationGetPartitionKey(log);
  if (key->strategy != PARTITION_STRATEGY_LIST || key->partnatts != 1 ||
      key->partattrs[0] != kGenerationColumn) {
    return InvalidOid;
  }
  const PartitionDesc partitions = RelationGetPartitionDesc(log, true);
  if (partitions->nparts == 0) return InvalidOid;
  bool equal = false;
  const int place =
      partition_list_bsearch(key->partsupfunc, key->partcollation, partitions->boundinfo,
                             Int16GetDatum(generation), &equal);
  if (place < 0 || !equal) return InvalidOid;
  const int partition = partitions->boundinfo->indexes[place];
  return partitions->is_leaf[partition] ? partitions->oids[partition] : InvalidOid;
}

// Sets the version of the row that is in `stored`.
bool UpdateVersion(PlainTable* counter, TupleTableSlot* stored, int64 version, Snapshot snapshot) {
  CheckCmdReplicaIdentity(counter->relation, CMD_UPDATE);
  slot_getallattrs(stored);
  const Datum values[] = {stored->tts_values[0], stored->tts_values[1], Int64GetDatum(version)};
  if (counter->updated == nullptr) {
    counter->updated =
        MakeSingleTupleTableSlot(RelationGetDescr(counter->relation), &TTSOpsHeapTuple);
  }
  ExecStoreHeapTuple(FormRow(counter, values), counter->updated, true);
  TM_FailureData failure;
  LockTupleMode mode;
  POSTBOX_UPDATE_INDEXES update_indexes{};
  ItemPointerData place = stored->tts_tid;
  if (POSTBOX_TUPLE_UPDATE(counter->relation, &place, counter->updated, GetCurrentCommandId(true),
                           snapshot, &failure, &mode, &update_indexes) != TM_Ok) {
    return false;
  }
  if (POSTBOX_NEEDS_INDEX_ENTRIES(update_indexes)) {
    AddIndexEntries(counter, values, &counter->updated->tts_tid, true);
  }
  return true;
}

// Puts rows into the heap, a page at a time, and says in them where they are. Allocates in the
// current memory context.
void InsertIntoHeap(const PlainTable* table, std::span<HeapTuple> rows) {
  const CommandId command = GetCurrentCommandId(true);
  // To form a page's WAL for one row takes longer.
  if (rows.size() == 1) return heap_insert(table->relation, rows[0], command, 0, nullptr);
  // A copy is not counted by the resource owner, for each slot.
  const TupleDesc columns = CreateTupleDescCopy(RelationGetDescr(table->relation));
  auto** slots = static_cast<TupleTableSlot**>(palloc(sizeof(TupleTableSlot*) * rows.size()));
  for (size_t i = 0; i < rows.size(); ++i) {
    slots[i] = MakeSingleTupleTableSlot(columns, &TTSOpsHeapTuple);
    ExecStoreHeapTuple(rows[i], slots[i], false);
  }
  heap_multi_insert(table->relation, slots, static_cast<int>(rows.size()), command, 0, nullptr);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i]->t_self = slots[i]->tts_tid;
    ExecDropSingleTupleTableSlot(slots[i]);
  }
  pfree(slots);
}

// Makes the row, unless another session makes one at the same time: as INSERT ... ON
// CONFLICT does it, the row can be taken back until its key is in the index. `token`: of the lock
// of speculative insertions, which is held. (A row that is deleted instead would be waited for: two
// sessions that have both met a third one would wait for each other.)
bool MakeCounterRow(const PlainTable* counter, Datum aggregate_type, Datum aggregate_id,
                    int64 version, uint32 token) {
  const Datum values[] = {aggregate_type, aggregate_id, Int64GetDatum(version)};
  HeapTuple row = FormRow(counter, values);
  HeapTupleHeaderSetSpeculativeToken(row->t_data, token);
  heap_insert(counter->relation, row, GetCurrentCommandId(true), HEAP_INSERT_SPECULATIVE, nullptr);
  const bool alone =
      AddIndexEntry(counter, counter->index[0], values, &row->t_self, UNIQUE_CHECK_PARTIAL, false);
  if (alone) {
    heap_finish_speculative(counter->relation, &row->t_self);
  } else {
    heap_abort_speculative(counter->relation, &row->t_self);
  }
  heap_freetuple(row);
  return alone;
}

// Makes the rows of aggregates that are likely to be new, up to one that is not or has a row, and
// returns their number. All are made under one lock, so a session that meets such a row waits until
// the last one is complete. Nothing in here waits for another transaction.
size_t MakeCounterRows(const PlainTable* counter, Datum aggregate_type, int64 first,
                       std::span<EventCount> counts) {
  const TransactionId transaction = GetCurrentTransactionId();
  const uint32 token = SpeculativeInsertionLockAcquire(transaction);
  size_t made = 0;
  for (; made < counts.size() && counts[made].is_likely_new; ++made) {
    EventCount& count = counts[made];
    count.version = first + count.events - 1;
    if (!MakeCounterRow(counter, aggregate_type, count.aggregate_id, count.version, token)) break;
  }
  SpeculativeInsertionLockRelease(transaction);
  return made;
}

int64 MakeOneCounterRow(PlainTable* counter, Datum aggregate_type, Datum aggregate_id,
                        int64 version) {
  EventCount count = {aggregate_id, 1, true, 0, 0};
  return MakeCounterRows(counter, aggregate_type, version, {&count, 1}) == 1 ? version : 0;
}

// What a scan of an index of the counter looks for in one of its columns, from 0.
ScanKeyData ScanKeyOf(Relation index, int column, Datum wanted) {
  ScanKeyData key;
  ScanKeyEntryInitialize(&key, 0, static_cast<AttrNumber>(column + 1), BTEqualStrategyNumber,
                         InvalidOid, index->rd_indcollation[column], F_TEXTEQ, wanted);
  return key;
}

// The index by which the row of an aggregate is found; nullptr if the counter has none.
Relation OpenCounterKey(Relation counter) {
  List* indexes = RelationGetIndexList(counter);
  Relation found = nullptr;
  ListCell* cell;
  foreach (cell, indexes) {
    found = index_open(lfirst_oid(cell), AccessShareLock);
    if (IsPlainIndex(found) && IsCounterKey(counter, found)) break;
    index_close(found, AccessShareLock);
    found = nullptr;
  }
  list_free(indexes);
  return found;
}

// Whether the counter has a row of a type, committed or not.
bool IndexHasType(Relation counter, Relation index, Datum aggregate_type) {
  SnapshotData dirty;
  InitDirtySnapshot(dirty);
  ScanKeyData key = ScanKeyOf(index, 0, aggregate_type);
  IndexScanDesc scan = POSTBOX_BEGIN_INDEX_SCAN(counter, index, &dirty, 1);
  index_rescan(scan, &key, 1, nullptr, 0);
  TupleTableSlot* row = table_slot_create(counter, nullptr);
  const bool found = index_getnext_slot(scan, ForwardScanDirection, row);
  ExecDropSingleTupleTableSlot(row);
  index_endscan(scan);
  return found;
}

// The same without an index: a dump that is being restored has the rows first.
bool HeapHasType(Relation counter, Datum aggregate_type) {
  const FormData_pg_attribute* column = TupleDescAttr(RelationGetDescr(counter), 0);
  if (column->attisdropped || column->atttypid != TEXTOID) return true;
  SnapshotData dirty;
  InitDirtySnapshot(dirty);
  ScanKeyData key;
  ScanKeyEntryInitialize(&key, 0, 1, InvalidStrategy, InvalidOid, C_COLLATION_OID, F_TEXTEQ,
                         aggregate_type);
  TableScanDesc scan = table_beginscan(counter, &dirty, 1, &key);
  TupleTableSlot* row = table_slot_create(counter, nullptr);
  const bool found = table_scan_getnextslot(scan, ForwardScanDirection, row);
  ExecDropSingleTupleTableSlot(row);
  table_endscan(scan);
  return found;
}

// Looks for rows of the counter, as one statement with a new snapshot would.
struct CounterScan {
  PlainTable* counter;
  Snapshot snapshot;
  IndexScanDesc scan;
};

CounterScan BeginCounterScan(PlainTable* counter) {
  if (counter->stored == nullptr) counter->stored = table_slot_create(counter->relation, nullptr);
  const Snapshot snapshot = RegisterSnapshot(GetTransactionSnapshot());
  return {counter, snapshot,
          POSTBOX_BEGIN_INDEX_SCAN(counter->relation, counter->index[0], snapshot, 2)};
}

void EndCounterScan(const CounterScan& scan) {
  index_endscan(scan.scan);
  ExecClearTuple(scan.counter->stored);
  UnregisterSnapshot(scan.snapshot);
}

// Sets the row of an aggregate to `next(its version)`, or makes it with the version `first`.
// Returns what it has then; 0 if a statement has to do it: if `next` is 0, or another session has
// written the row since. To be called once for an aggregate.
template <class Next>
int64 ChangeInTable(const CounterScan& scan, Datum aggregate_type, Datum aggregate_id, int64 first,
                    Next&& next) {
  PlainTable* counter = scan.counter;
  Relation index = counter->index[0];
  ScanKeyData keys[2] = {ScanKeyOf(index, 0, aggregate_type), ScanKeyOf(index, 1, aggregate_id)};
  index_rescan(scan.scan, keys, 2, nullptr, 0);
  if (!index_getnext_slot(scan.scan, ForwardScanDirection, counter->stored)) {
    return MakeOneCounterRow(counter, aggregate_type, aggregate_id, first);
  }
  bool null = true;
  const int64 last = DatumGetInt64(slot_getattr(counter->stored, 3, &null));
  // What is out of range is the statement's to say.
  const int64 wanted = null || last < 0 ? 0 : next(last);
  if (wanted == 0 || !UpdateVersion(counter, counter->stored, wanted, scan.snapshot)) return 0;
  return wanted;
}

}  // namespace

bool OpenPlainTable(Oid table, std::span<const PlainColumn> columns, const char* positive,
                    Oid trigger, PlainTable* opened) {
  *opened = {};
  Relation relation = try_relation_open(table, RowExclusiveLock);
  if (relation == nullptr) return false;
  opened->relation = relation;
  bool plain = relation->rd_rel->relkind == RELKIND_RELATION &&
               relation->rd_rel->relam == HEAP_TABLE_AM_OID && HasNoCode(relation, trigger) &&
               HasColumns(RelationGetDescr(relation), columns, positive);
  if (plain) {
    List* indexes = RelationGetIndexList(relation);
    plain = list_length(indexes) <= PlainTable::kMaxIndexes;
    ListCell* cell;
    foreach (cell, indexes) {
      if (!plain) break;
      Relation index = index_open(lfirst_oid(cell), RowExclusiveLock);
      plain = IsPlainIndex(index);
      opened->index[opened->indexes++] = index;
    }
    list_free(indexes);
  }
  if (!plain) ClosePlainTable(opened);
  return plain;
}

void ClosePlainTable(PlainTable* table) {
  for (TupleTableSlot* slot : {table->updated, table->stored}) {
    if (slot != nullptr) ExecDropSingleTupleTableSlot(slot);
  }
  for (int i = 0; i < table->indexes; ++i) {
    index_close(table->index[i], NoLock);
  }
  relation_close(table->relation, NoLock);
}

void InsertRow(PlainTable* table, const Datum* values) {
  HeapTuple row = FormRow(table, values);
  heap_insert(table->relation, row, GetCurrentCommandId(true), 0, nullptr);
  AddIndexEntries(table, values, &row->t_self, false);
  heap_freetuple(row);
}

void InsertIntoLogPartition(PlainTable* log, std::span<const LogRow> rows) {
  auto* tuples = static_cast<HeapTuple*>(palloc(sizeof(HeapTuple) * rows.size()));
  for (size_t i = 0; i < rows.size(); ++i) tuples[i] = FormRow(log, &rows[i].txid);
  InsertIntoHeap(log, {tuples, rows.size()});
  for (int i = 0; i < log->indexes; ++i) {
    Relation index = log->index[i];
    const IndexUniqueCheck check =
        index->rd_index->indisunique ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO;
    for (size_t row = 0; row < rows.size(); ++row) {
      AddIndexEntry(log, index, &rows[row].txid, &tuples[row]->t_self, check, false);
    }
  }
}

bool OpenCounterTable(Oid counter, PlainTable* opened) {
  if (!OpenPlainTable(counter, kCounterColumns, nullptr, InvalidOid, opened)) return false;
  // As a partition it has the constraint of one.
  if (opened->indexes == 1 && !opened->relation->rd_rel->relispartition &&
      IsCounterKey(opened->relation, opened->index[0])) {
    return true;
  }
  ClosePlainTable(opened);
  return false;
}

size_t CountUpInTable(PlainTable* counter, Datum aggregate_type, int64 first,
                      std::span<EventCount> counts) {
  size_t counted = 0;
  if (counts[0].is_likely_new) counted = MakeCounterRows(counter, aggregate_type, first, counts);
  if (counted == counts.size()) return counted;
  const CounterScan scan = BeginCounterScan(counter);
  for (; counted < counts.size(); ++counted) {
    EventCount& count = counts[counted];
    const int64 events = count.events;
    count.version = ChangeInTable(
        scan, aggregate_type, count.aggregate_id, first + events - 1,
        [events](int64 last) { return last <= PG_INT64_MAX - events ? last + events : 0; });
    if (count.version == 0) break;
  }
  EndCounterScan(scan);
  return counted;
}

bool RaiseInTable(PlainTable* counter, Datum aggregate_type, Datum aggregate_id, int64 version) {
  const CounterScan scan = BeginCounterScan(counter);
  const int64 raised =
      ChangeInTable(scan, aggregate_type, aggregate_id, version,
                    [version](int64 last) { return last < version ? version : 0; });
  EndCounterScan(scan);
  return raised != 0;
}

bool MayHaveRowOfType(Oid counter, Datum aggregate_type) {
  Relation relation = try_relation_open(counter, AccessShareLock);
  if (relation == nullptr) return true;
  bool found = true;
  const FormData_pg_class& form = *relation->rd_rel;
  if (form.relkind == RELKIND_RELATION && form.relam == HEAP_TABLE_AM_OID) {
    Relation index = OpenCounterKey(relation);
    if (index != nullptr) {
      found = IndexHasType(relation, index, aggregate_type);
      index_close(index, AccessShareLock);
    } else if (!form.relhasindex) {
      found = HeapHasType(relation, aggregate_type);
    }
  }
  relation_close(relation, AccessShareLock);
  return found;
}

bool OpenLogPartition(Oid log, int16 generation, Oid stamp, PlainTable* opened) {
  Relation parent = try_relation_open(log, NoLock);
  if (parent == nullptr) return false;
  Oid partition = InvalidOid;
  if (parent->rd_rel->relkind == RELKIND_PARTITIONED_TABLE && !parent->rd_rel->relispartition &&
      HasNoCode(parent, InvalidOid)) {
    partition = PartitionOf(parent, generation);
  }
  relation_close(parent, NoLock);
  return OidIsValid(partition) &&
         OpenPlainTable(partition, kLogColumns, kPositiveColumn, stamp, opened);
}

}  // namespace postbox

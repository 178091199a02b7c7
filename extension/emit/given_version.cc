#include "extension/emit/given_version.h"

#include "extension/base/relation.h"
#include "extension/trust/act_as.h"
#include "extension/trust/registrar.h"

extern "C" {
#include <catalog/pg_collation.h>
#include <utils/fmgroids.h>
}

namespace postbox {
namespace {

constexpr int64 kExactFloor = 64;
// A version above is in the counter, and not in the floor: one that leaves no room would keep all
// other aggregates of the type from counting.
// Times in microseconds are below.
constexpr int64 kGreatestFloor = int64{1} << 53;
// Of types that a session remembers.
constexpr size_t kMaxTypes = 10'000;

// A floor that holds in one subtransaction, as long as nothing in it is rolled back.
struct FloorInTransaction {
  int64 version = 0;
  uint64 top = 0;  // a transaction id; 0: none
  SubTransactionId sub = InvalidSubTransactionId;

  void Set(int64 found) {
    version = found;
    top = U64FromFullTransactionId(GetTopFullTransactionIdIfAny());
    sub = GetCurrentSubTransactionId();
  }
  bool IsSet() const {
    return top != 0 && sub == GetCurrentSubTransactionId() &&
           top == U64FromFullTransactionId(GetTopFullTransactionIdIfAny());
  }
};

// What a session knows of a type of an outbox.
struct TypeVersions {
  bool counted = false;
  int64 committed = 0;        // a floor that is committed
  FloorInTransaction own;     // what is committed, and what this transaction has added
  FloorInTransaction of_all;  // with what others have added: what FloorOfType() has found
};

TypeVersions& VersionsOf(const OutboxFacts& facts, Datum aggregate_type) {
  static auto& types = *new std::unordered_map<std::string, TypeVersions>;
  static std::string& key = *new std::string;
  // A new table of given versions, or a new counter, is one of which nothing is known.
  const Oid tables[] = {facts.given_versions, facts.relation, facts.counter};
  key.assign(reinterpret_cast<const char*>(tables), sizeof tables);
  const auto* type = reinterpret_cast<const varlena*>(DatumGetPointer(aggregate_type));
  key.append(VARDATA_ANY(type), VARSIZE_ANY_EXHDR(type));
  if (types.size() >= kMaxTypes) types.clear();
  return types[key];
}

struct StoredFloor {
  int64 version;      // 0 if there is none
  bool is_committed;  // whether it stays if this transaction is rolled back
};

// The greatest version of a type in postbox.given_version. Inside Pg().
StoredFloor ReadFloor(const OutboxFacts& facts, Datum aggregate_type, Snapshot snapshot) {
  Relation table = table_open(facts.given_versions, AccessShareLock);
  List* indexes = RelationGetIndexList(table);
  if (indexes == nullptr) elog(ERROR, "postbox.given_version has no index");
  Relation index = index_open(linitial_oid(indexes), AccessShareLock);
  list_free(indexes);
  ScanKeyData keys[2];
  ScanKeyEntryInitialize(&keys[0], 0, 1, BTEqualStrategyNumber, InvalidOid, InvalidOid, F_OIDEQ,
                         ObjectIdGetDatum(facts.relation));
  ScanKeyEntryInitialize(&keys[1], 0, 2, BTEqualStrategyNumber, InvalidOid, C_COLLATION_OID,
                         F_TEXTEQ, aggregate_type);
  SysScanDesc scan = systable_beginscan_ordered(table, index, snapshot, 2, keys);
  StoredFloor found{0, false};
  const HeapTuple row = systable_getnext_ordered(scan, BackwardScanDirection);
  if (HeapTupleIsValid(row)) {
    bool null = true;
    found.version = DatumGetInt64(heap_getattr(row, 3, RelationGetDescr(table), &null));
    found.is_committed = !TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(row->t_data));
  }
  systable_endscan_ordered(scan);
  index_close(index, AccessShareLock);
  table_close(table, AccessShareLock);
  return found;
}

bool IsCounted(const OutboxFacts& facts, Datum aggregate_type) {
  return Pg([&] { return MayHaveRowOfType(facts.counter, aggregate_type); });
}

int64 FloorFor(int64 version) { return version <= kExactFloor ? version : version + version / 8; }

// Makes this the floor of a type, unless the type is counted. Returns whether it has.
bool AddFloor(const OutboxFacts& facts, Datum aggregate_type, int64 floor) {
  SpiConnection connection;
  FixedSearchPath search_path;
  const Registrar registrar("given_version");
  Parameters row;
  row.AddOid(REGCLASSOID, facts.relation).Add(TEXTOID, aggregate_type);
  row.Add(INT8OID, Int64GetDatum(floor));
  Run("INSERT INTO postbox.given_version (outbox, aggregate_type, version) VALUES ($1, $2, $3) "
      "RETURNING ctid",
      row);
  if (!IsCounted(facts, aggregate_type)) return true;
  ItemPointerData place = TidColumn(0, 1);
  Parameters added;
  added.Add(TIDOID, PointerGetDatum(&place));
  Run("DELETE FROM postbox.given_version WHERE ctid = $1", added);
  return false;
}

}  // namespace

bool MustRaiseCounter(const Outbox& outbox, Datum aggregate_type, int64 version) {
  const OutboxFacts& facts = outbox.facts();
  TypeVersions& type = VersionsOf(facts, aggregate_type);
  if (version <= type.committed || (type.own.IsSet() && version <= type.own.version)) return false;
  if (!type.counted && IsCounted(facts, aggregate_type)) type.counted = true;
  if (type.counted || version > kGreatestFloor) return true;
  const StoredFloor stored = Pg([&] { return ReadFloor(facts, aggregate_type, SnapshotSelf); });
  if (stored.is_committed) type.committed = stored.version;
  int64 floor = stored.version;
  if (version > floor) {
    floor = FloorFor(version);
    if (!AddFloor(facts, aggregate_type, floor)) return true;
  }
  type.own.Set(floor);
  return false;
}

int64 FloorOfType(const Outbox& outbox, Datum aggregate_type) {
  const OutboxFacts& facts = outbox.facts();
  if (!facts.is_log) return 0;
  TypeVersions& type = VersionsOf(facts, aggregate_type);
  if (!type.of_all.IsSet()) {
    const StoredFloor stored = Pg([&] {
      SnapshotData dirty;
      InitDirtySnapshot(dirty);
      return ReadFloor(facts, aggregate_type, &dirty);
    });
    type.of_all.Set(stored.version);
  }
  return type.of_all.version;
}

int64 KnownFloorOfType(const Outbox& outbox, Datum aggregate_type) {
  const OutboxFacts& facts = outbox.facts();
  if (!facts.is_log) return 0;
  const TypeVersions& type = VersionsOf(facts, aggregate_type);
  return type.of_all.IsSet() ? type.of_all.version : 0;
}

}  // namespace postbox

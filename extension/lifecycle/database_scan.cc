#include "extension/lifecycle/database_scan.h"

#include "extension/base/guard.h"

extern "C" {
#include <access/heapam.h>
#include <access/tableam.h>
}

namespace postbox {
namespace {

// What the scan of pg_database yields: plain data, since an error may jump over it.
struct DatabaseRow {
  Oid oid;
  NameData name;
};
struct DatabaseRows {
  DatabaseRow* rows;
  int count;
};

// The databases in which a worker could run, in a separate transaction; the rows are allocated in
// `context`, which outlives it. Call it inside Pg().
DatabaseRows ScanDatabases(MemoryContext context) {
  DatabaseRows result{nullptr, 0};
  int room = 0;
  StartTransactionCommand();
  (void)GetTransactionSnapshot();
  Relation catalog = table_open(DatabaseRelationId, AccessShareLock);
  TableScanDesc scan = table_beginscan_catalog(catalog, 0, nullptr);
  HeapTuple tuple;
  while (HeapTupleIsValid(tuple = heap_getnext(scan, ForwardScanDirection))) {
    const auto* row = reinterpret_cast<Form_pg_database>(GETSTRUCT(tuple));
    // -2 marks a database whose DROP was interrupted: no session can connect.
    if (!row->datallowconn || row->datistemplate || row->datconnlimit == -2) continue;
    if (result.count == room) {
      room = room == 0 ? 16 : room * 2;
      auto* bigger =
          static_cast<DatabaseRow*>(MemoryContextAlloc(context, room * sizeof(DatabaseRow)));
      if (result.count > 0) memcpy(bigger, result.rows, result.count * sizeof(DatabaseRow));
      result.rows = bigger;
    }
    result.rows[result.count].oid = row->oid;
    result.rows[result.count].name = row->datname;
    ++result.count;
  }
  table_endscan(scan);
  table_close(catalog, AccessShareLock);
  CommitTransactionCommand();
  return result;
}

}  // namespace

std::vector<ListedDatabase> ListDatabases() {
  MemoryContext context =
      Pg([] { return AllocSetContextCreate(TopMemoryContext, "postbox", ALLOCSET_DEFAULT_SIZES); });
  const DatabaseRows found = Pg([context] { return ScanDatabases(context); });
  std::vector<ListedDatabase> result;
  for (int i = 0; i < found.count; ++i) {
    result.push_back({found.rows[i].oid, NameStr(found.rows[i].name)});
  }
  MemoryContextDelete(context);
  return result;
}

}  // namespace postbox

// Reading the system catalogs without a statement, for what is asked often: the checks of a look at
// the status. A statement over as many catalogs would cost ten times as much.
//
// All of it is for inside Pg(): it may raise errors by ereport, and owns no C++ objects. It locks
// nothing but the catalogs, so a session that has locked a user's table holds up nothing here. It
// sees what is committed now, whatever the snapshot of the transaction is.
#ifndef POSTBOX_EXTENSION_BASE_CATALOG_H_
#define POSTBOX_EXTENSION_BASE_CATALOG_H_

#include "extension/base/postgres.h"

extern "C" {
#include <catalog/pg_inherits.h>
#include <utils/fmgroids.h>
}

namespace postbox {

struct CatalogKey {
  int column;
  Oid value;
};

// Calls `use(tuple)` for the rows of a catalog that have these OIDs, through an index that begins
// with their columns.
template <class F>
void ForEachCatalogRow(Oid catalog, Oid index, std::initializer_list<CatalogKey> keys, F&& use) {
  ScanKeyData scan_keys[2];
  Assert(keys.size() <= lengthof(scan_keys));
  int count = 0;
  for (const CatalogKey& key : keys) {
    ScanKeyInit(&scan_keys[count++], static_cast<AttrNumber>(key.column), BTEqualStrategyNumber,
                F_OIDEQ, ObjectIdGetDatum(key.value));
  }
  Relation relation = table_open(catalog, AccessShareLock);
  SysScanDesc scan = systable_beginscan(relation, index, true, nullptr, count, scan_keys);
  for (HeapTuple tuple = systable_getnext(scan); HeapTupleIsValid(tuple);
       tuple = systable_getnext(scan)) {
    use(tuple);
  }
  systable_endscan(scan);
  table_close(relation, AccessShareLock);
}

// Calls `use(form)` for the row of a relation in pg_class; false if there is none.
template <class F>
bool WithRelation(Oid relation, F&& use) {
  HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
  if (!HeapTupleIsValid(tuple)) return false;
  use(*reinterpret_cast<Form_pg_class>(GETSTRUCT(tuple)));
  ReleaseSysCache(tuple);
  return true;
}

// The children of a relation, those that are being detached too; none if it has been dropped.
inline List* ChildrenOf(Oid relation) {
  if (!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(relation))) return nullptr;
  return find_inheritance_children_extended(relation, false, NoLock, nullptr, nullptr);
}

// The relations that inherit from this one: its partitions and theirs. Not the relation itself.
inline List* PartitionsOf(Oid relation) {
  List* all = ChildrenOf(relation);
  for (int i = 0; i < list_length(all); ++i) {  // it grows
    all = list_concat_unique_oid(all, ChildrenOf(list_nth_oid(all, i)));
  }
  return all;
}

// The quoted qualified name of a relation; its number if it has just been dropped.
inline const char* QualifiedName(Oid relation) {
  const char* schema = get_namespace_name(get_rel_namespace(relation));
  const char* name = get_rel_name(relation);
  if (schema == nullptr || name == nullptr) return psprintf("%u", relation);
  return quote_qualified_identifier(schema, name);
}

// One of several problems. The first is that of the least rank, and of these of the least text.
struct FoundProblem {
  int rank = 0;
  const char* text = nullptr;  // nullptr: there is none
  const char* code = nullptr;
  const char* subject = nullptr;
  const char* remedy = nullptr;

  void Add(const FoundProblem& other) {
    if (text != nullptr) {
      if (other.rank > rank) return;
      if (other.rank == rank && std::strcmp(other.text, text) >= 0) return;
    }
    *this = other;
  }
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_BASE_CATALOG_H_

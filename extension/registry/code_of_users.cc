// postbox.code_of_users(relation, other): the code of an ordinary user that reading a table would
// run, or may run.
//
// That is: policies where row security is forced, functions and operators in indexes, constraints
// and statistics (the planner computes what is constant in them), casts, and whatever a foreign
// table asks. Such code may sleep for ever, and catch the cancel. What a superuser owns, as most
// extensions are, is trusted. Judged by the catalogs, of which each look at the status asks.
#include "extension/base/arguments.h"
#include "extension/base/catalog.h"
#include "extension/base/guard.h"
#include "extension/base/spi.h"
#include "extension/trust/act_as.h"

extern "C" {
#include <catalog/indexing.h>
#include <catalog/pg_cast.h>
#include <catalog/pg_constraint.h>
#include <catalog/pg_depend.h>
#include <catalog/pg_index.h>
#include <catalog/pg_operator.h>
#include <catalog/pg_statistic_ext.h>
#include <utils/regproc.h>
}

namespace postbox {
namespace {

// One of the two tables, and what is found. A table is `of` for its partitions.
class Search {
 public:
  explicit Search(Oid of) : of_(of) {}

  const FoundProblem& LookAtAll() {
    LookAtRowSecurity();
    LookAtTable(of_);
    ListCell* cell;
    foreach (cell, PartitionsOf(of_)) LookAtTable(lfirst_oid(cell));
    LookAtTypes();
    return found_;
  }

 private:
  void LookAtRowSecurity() {
    WithRelation(of_, [&](const FormData_pg_class& form) {
      if (!form.relrowsecurity || !form.relforcerowsecurity) return;
      found_.Add({2, psprintf("row security is forced on %s", QualifiedName(of_))});
    });
  }

  // A table or partition, with what belongs to it.
  void LookAtTable(Oid table) {
    const bool there = WithRelation(table, [&](const FormData_pg_class& form) {
      if (form.relkind == RELKIND_RELATION || form.relkind == RELKIND_PARTITIONED_TABLE) return;
      found_.Add({1, psprintf("%s is not a table", QualifiedName(table))});
    });
    if (!there) return;
    LookAtDependencies(RelationRelationId, table);
    ForEachCatalogRow(IndexRelationId, IndexIndrelidIndexId, {{Anum_pg_index_indrelid, table}},
                      [&](HeapTuple index) { LookAtIndex(index); });
    ForEachCatalogRow(ConstraintRelationId, ConstraintRelidTypidNameIndexId,
                      {{Anum_pg_constraint_conrelid, table}},
                      [&](HeapTuple constraint) { LookAtConstraint(constraint); });
    ForEachCatalogRow(StatisticExtRelationId, StatisticExtRelidIndexId,
                      {{Anum_pg_statistic_ext_stxrelid, table}}, [&](HeapTuple statistics) {
                        LookAtDependencies(
                            StatisticExtRelationId,
                            reinterpret_cast<Form_pg_statistic_ext>(GETSTRUCT(statistics))->oid);
                      });
  }

  // Only expressions and predicates depend on functions and operators.
  void LookAtIndex(HeapTuple index) {
    if (heap_attisnull(index, Anum_pg_index_indexprs, nullptr) &&
        heap_attisnull(index, Anum_pg_index_indpred, nullptr)) {
      return;
    }
    LookAtDependencies(RelationRelationId,
                       reinterpret_cast<Form_pg_index>(GETSTRUCT(index))->indexrelid);
  }

  // The operators of a key are those of its index.
  void LookAtConstraint(HeapTuple constraint) {
    const auto* form = reinterpret_cast<Form_pg_constraint>(GETSTRUCT(constraint));
    if (form->contype == CONSTRAINT_PRIMARY || form->contype == CONSTRAINT_UNIQUE) return;
    LookAtDependencies(ConstraintRelationId, form->oid);
  }

  void LookAtDependencies(Oid catalog, Oid object) {
    ForEachCatalogRow(DependRelationId, DependDependerIndexId,
                      {{Anum_pg_depend_classid, catalog}, {Anum_pg_depend_objid, object}},
                      [&](HeapTuple tuple) {
                        const auto* row = reinterpret_cast<Form_pg_depend>(GETSTRUCT(tuple));
                        if (row->refclassid == ProcedureRelationId) LookAtFunction(row->refobjid);
                        if (row->refclassid == OperatorRelationId) LookAtOperator(row->refobjid);
                      });
  }

  // A domain has the casts of its base type.
  void LookAtTypes() {
    AttrNumber columns = 0;
    WithRelation(of_, [&](const FormData_pg_class& form) { columns = form.relnatts; });
    List* types = nullptr;
    for (AttrNumber column = 1; column <= columns; ++column) {
      HeapTuple tuple = SearchSysCache2(ATTNUM, ObjectIdGetDatum(of_), Int16GetDatum(column));
      if (!HeapTupleIsValid(tuple)) continue;
      types = list_append_unique_oid(
          types, reinterpret_cast<Form_pg_attribute>(GETSTRUCT(tuple))->atttypid);
      ReleaseSysCache(tuple);
    }
    for (int i = 0; i < list_length(types); ++i) {
      HeapTuple tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(list_nth_oid(types, i)));
      if (HeapTupleIsValid(tuple)) {
        const auto* form = reinterpret_cast<Form_pg_type>(GETSTRUCT(tuple));
        if (form->typtype == TYPTYPE_DOMAIN) {
          types = list_append_unique_oid(types, form->typbasetype);
        }
        ReleaseSysCache(tuple);
      }
      LookAtCasts(list_nth_oid(types, i));
    }
  }

  void LookAtCasts(Oid type) {
    CatCList* casts = SearchSysCacheList1(CASTSOURCETARGET, ObjectIdGetDatum(type));
    for (int i = 0; i < casts->n_members; ++i) {
      const auto* cast = reinterpret_cast<Form_pg_cast>(GETSTRUCT(&casts->members[i]->tuple));
      if (OidIsValid(cast->castfunc)) LookAtFunction(cast->castfunc);
    }
    ReleaseCatCacheList(casts);
  }

  void LookAtFunction(Oid function) {
    HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
    if (!HeapTupleIsValid(tuple)) return;
    const Oid owner = reinterpret_cast<Form_pg_proc>(GETSTRUCT(tuple))->proowner;
    ReleaseSysCache(tuple);
    if (superuser_arg(owner)) return;
    found_.Add(
        {3, psprintf("%s uses function %s", QualifiedName(of_), format_procedure(function))});
  }

  void LookAtOperator(Oid operation) {
    HeapTuple tuple = SearchSysCache1(OPEROID, ObjectIdGetDatum(operation));
    if (!HeapTupleIsValid(tuple)) return;
    const Oid owner = reinterpret_cast<Form_pg_operator>(GETSTRUCT(tuple))->oprowner;
    ReleaseSysCache(tuple);
    if (superuser_arg(owner)) return;
    found_.Add(
        {3, psprintf("%s uses operator %s", QualifiedName(of_), format_operator(operation))});
  }

  Oid of_;
  FoundProblem found_;
};

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(code_of_users) {
  using namespace postbox;
  return Guarded([&]() -> Datum {
    const FixedSearchPath search_path;  // names are qualified by it
    const char* code = Pg([&]() -> const char* {
      FoundProblem first;
      for (int argument = 0; argument < 2; ++argument) {
        if (!HasArgument(fcinfo, argument)) continue;
        Search search(DatumGetObjectId(fcinfo->args[argument].value));
        const FoundProblem& found = search.LookAtAll();
        if (found.text != nullptr) first.Add(found);
      }
      return first.text;
    });
    fcinfo->isnull = code == nullptr;
    return code == nullptr ? Datum{0} : TextValue(code);
  });
}

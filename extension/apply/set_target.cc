#include "extension/apply/set_target.h"

extern "C" {
#include <catalog/index.h>
#include <catalog/pg_am.h>
#include <optimizer/optimizer.h>
#include <rewrite/rewriteHandler.h>
}

#include "extension/apply/column_value.h"
#include "extension/apply/unknown_code.h"

namespace postbox {
namespace {

// No CHECK, but those of a shadow that stand for a NOT NULL.
bool ChecksNothing(Relation relation, bool is_shadow) {
  const TupleConstr* constraints = RelationGetDescr(relation)->constr;
  if (constraints == nullptr) return true;
  for (int i = 0; i < constraints->num_check; ++i) {
    const std::string_view name = constraints->check[i].ccname;
    if (!is_shadow || !name.starts_with(kRequiredCheck)) return false;
  }
  return true;
}

bool RunsNothing(Relation relation) {
  const FormData_pg_class& form = *relation->rd_rel;
  return form.relkind == RELKIND_RELATION && !form.relispartition && !form.relhassubclass &&
         !form.relrowsecurity && relation->trigdesc == nullptr && relation->rd_rules == nullptr;
}

// Whether a row gets the same value from it, however often it is written in the transaction.
bool IsSteady(Node* value) {
  return value == nullptr || (!contain_volatile_functions(value) && !RunsUnknownCode(value));
}

bool TakesColumn(Relation relation, const FormData_pg_attribute& attribute, bool is_written) {
  if (attribute.attisdropped) return true;
  if (attribute.attgenerated != '\0' || getBaseType(attribute.atttypid) != attribute.atttypid) {
    return false;
  }
  if (is_written) {
    return attribute.attlen >= -1 && !IsStructured(attribute.atttypid) &&
           OidIsValid(get_array_type(attribute.atttypid));
  }
  // A wide value that cannot be stored elsewhere leaves others no room in the row.
  const bool stays = attribute.attlen == -1 && attribute.attstorage == TYPSTORAGE_PLAIN;
  return attribute.attidentity == '\0' && !stays &&
         (!attribute.atthasdef || IsSteady(build_column_default(relation, attribute.attnum)));
}

bool IsWritten(const ProjectionColumns& columns, AttrNumber number) {
  return std::any_of(columns.columns.begin(), columns.columns.end(),
                     [&](const ProjectionColumn& column) { return column.number == number; });
}

// Whether equal keys of the index are those whose texts are equal.
bool IsOfExactKey(Relation index, const ProjectionColumns& columns) {
  for (int i = 0; i < index->rd_index->indnkeyatts; ++i) {
    const auto end = columns.columns.begin() + static_cast<ptrdiff_t>(columns.key_size);
    const auto column =
        std::find_if(columns.columns.begin(), end, [&](const ProjectionColumn& one) {
          return one.number == index->rd_index->indkey.values[i];
        });
    if (column == end || column->collation != index->rd_indcollation[i] ||
        !HasExactText(column->type, column->collation)) {
      return false;
    }
  }
  return index->rd_index->indnkeyatts == static_cast<int>(columns.key_size);
}

// Likewise in an entry of an index.
bool HasWideColumn(Relation index, const ProjectionColumns& columns) {
  for (int i = 0; i < index->rd_index->indnatts; ++i) {
    const bool wide = TupleDescAttr(RelationGetDescr(index), i)->attlen == -1;
    if (wide && !IsWritten(columns, index->rd_index->indkey.values[i])) return true;
  }
  return false;
}

bool TakesIndex(Relation index, const ProjectionColumns& columns) {
  const FormData_pg_index& form = *index->rd_index;
  if (index->rd_rel->relam != BTREE_AM_OID || form.indisexclusion ||
      HasWideColumn(index, columns) ||
      !heap_attisnull(index->rd_indextuple, Anum_pg_index_indexprs, nullptr) ||
      !heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, nullptr)) {
    return false;
  }
  for (int i = 0; i < form.indnkeyatts; ++i) {
    if (index->rd_opfamily[i] >= FirstNormalObjectId) return false;
  }
  return !form.indisunique || IsOfExactKey(index, columns);
}

bool TakesIndexes(Relation relation, const ProjectionColumns& columns) {
  bool takes = true;
  ListCell* cell;
  foreach (cell, RelationGetIndexList(relation)) {
    Relation index = index_open(lfirst_oid(cell), AccessShareLock);
    takes = takes && TakesIndex(index, columns);
    index_close(index, AccessShareLock);
  }
  return takes;
}

bool TakesColumns(Relation relation, const ProjectionColumns& columns) {
  TupleDesc descriptor = RelationGetDescr(relation);
  for (int i = 0; i < descriptor->natts; ++i) {
    const FormData_pg_attribute& attribute = *TupleDescAttr(descriptor, i);
    if (!TakesColumn(relation, attribute, IsWritten(columns, attribute.attnum))) return false;
  }
  return true;
}

}  // namespace

bool TakesSets(Oid target, const ProjectionColumns& columns) {
  return Pg([&] {
    Relation relation = relation_open(target, AccessShareLock);
    const bool takes = RunsNothing(relation) && ChecksNothing(relation, !columns.marks.empty()) &&
                       TakesColumns(relation, columns) && TakesIndexes(relation, columns);
    relation_close(relation, AccessShareLock);
    return takes;
  });
}

}  // namespace postbox

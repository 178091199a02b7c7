#include "extension/apply/unknown_code.h"

extern "C" {
#include <access/genam.h>
#include <access/relation.h>
#include <nodes/nodeFuncs.h>
#include <utils/fmgroids.h>
}

namespace postbox {
namespace {

bool IsUnknown(Oid function, void* /*context*/) {
  if (function >= FirstNormalObjectId) return true;
  switch (function) {
    case F_NOW:
    case F_TRANSACTION_TIMESTAMP:
    case F_STATEMENT_TIMESTAMP:
    case F_CLOCK_TIMESTAMP:
    case F_GEN_RANDOM_UUID:
    case F_NEXTVAL:
      return false;
    default:
      return func_volatile(function) != PROVOLATILE_IMMUTABLE;
  }
}

bool Walk(Node* node, void* context) {
  if (node == nullptr) return false;
  // The constraints of the domain are not in the expression.
  if (IsA(node, CoerceToDomain)) return true;
  if (check_functions_in_node(node, IsUnknown, nullptr)) return true;
  return POSTBOX_WALK_EXPRESSION(node, Walk, context);
}

bool RunsText(const char* expression) {
  return Walk(static_cast<Node*>(stringToNode(expression)), nullptr);
}

bool HasCode(const FormData_pg_class& form) {
  return form.relhastriggers || form.relhasrules || form.relrowsecurity;
}

bool HasConstraints(TupleDesc descriptor) {
  for (int i = 0; i < descriptor->natts; ++i) {
    const FormData_pg_attribute& attribute = *TupleDescAttr(descriptor, i);
    if (attribute.attisdropped) continue;
    // Of a domain, also as an element.
    const Oid element = get_element_type(attribute.atttypid);
    const Oid type = OidIsValid(element) ? element : attribute.atttypid;
    if (getBaseType(type) != type || type_is_rowtype(type)) return true;
  }
  const TupleConstr* constraints = descriptor->constr;
  if (constraints == nullptr) return false;
  for (int i = 0; i < constraints->num_defval; ++i) {
    if (RunsText(constraints->defval[i].adbin)) return true;
  }
  for (int i = 0; i < constraints->num_check; ++i) {
    if (RunsText(constraints->check[i].ccbin)) return true;
  }
  return false;
}

bool IndexHasCode(Oid id) {
  Relation index = index_open(id, AccessShareLock);
  const bool has = index->rd_index->indisexclusion ||
                   Walk(reinterpret_cast<Node*>(RelationGetIndexExpressions(index)), nullptr) ||
                   Walk(reinterpret_cast<Node*>(RelationGetIndexPredicate(index)), nullptr);
  index_close(index, AccessShareLock);
  return has;
}

bool IndexesHaveCode(Relation relation) {
  bool has = false;
  ListCell* cell;
  foreach (cell, RelationGetIndexList(relation)) has = has || IndexHasCode(lfirst_oid(cell));
  return has;
}

}  // namespace

bool RunsUnknownCode(Node* expression) { return Walk(expression, nullptr); }

bool WritingRunsUnknownCode(Oid relation, Whole whole) {
  return Pg([&] {
    Relation opened = try_relation_open(relation, AccessShareLock);
    if (opened == nullptr) return false;
    const bool is_whole =
        opened->rd_rel->relkind == RELKIND_RELATION && !opened->rd_rel->relispartition;
    const bool runs = (whole == Whole::kYes && !is_whole) || HasCode(*opened->rd_rel) ||
                      HasConstraints(RelationGetDescr(opened)) || IndexesHaveCode(opened);
    relation_close(opened, AccessShareLock);
    return runs;
  });
}

}  // namespace postbox

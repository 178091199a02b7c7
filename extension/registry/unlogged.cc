// postbox.unlogged_problem(tables): which tables of an outbox or inbox are UNLOGGED.
// Nothing keeps an owner from it; so it is said where one looks.
#include "extension/base/arguments.h"
#include "extension/base/catalog.h"
#include "extension/base/guard.h"
#include "extension/base/spi.h"
#include "extension/shared/problem.h"
#include "extension/trust/act_as.h"

namespace postbox {
namespace {

// Inside Pg().
List* UnloggedOf(ArrayType* tables) {
  Datum* values = nullptr;
  bool* nulls = nullptr;
  int count = 0;
  deconstruct_array(tables, REGCLASSOID, sizeof(Oid), true, TYPALIGN_INT, &values, &nulls, &count);
  List* all = nullptr;
  for (int i = 0; i < count; ++i) {
    if (nulls[i]) continue;
    all = list_append_unique_oid(all, DatumGetObjectId(values[i]));
    all = list_concat_unique_oid(all, PartitionsOf(DatumGetObjectId(values[i])));
  }
  List* unlogged = nullptr;
  ListCell* cell;
  foreach (cell, all) {
    WithRelation(lfirst_oid(cell), [&](const FormData_pg_class& form) {
      if (form.relpersistence == RELPERSISTENCE_UNLOGGED) {
        unlogged = lappend(unlogged, const_cast<char*>(QualifiedName(form.oid)));
      }
    });
  }
  return unlogged;
}

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(unlogged_problem) {
  using namespace postbox;
  return Guarded([&]() -> Datum {
    const FixedSearchPath search_path;
    const Datum tables = fcinfo->args[0].value;
    List* unlogged = HasArgument(fcinfo, 0)
                         ? Pg([&] { return UnloggedOf(DatumGetArrayTypeP(tables)); })
                         : nullptr;
    if (unlogged == nullptr) return ProblemResult(fcinfo, std::nullopt);
    std::set<std::string> names;
    ListCell* cell;
    foreach (cell, unlogged) names.insert(static_cast<const char*>(lfirst(cell)));
    std::string list;
    std::string repair;
    for (const std::string& name : names) {
      list += (list.empty() ? "" : ", ") + name;
      repair += (repair.empty() ? "" : "; ") + ("ALTER TABLE " + name + " SET LOGGED");
    }
    const char* is = names.size() == 1 ? " is" : " are";
    return ProblemResult(fcinfo,
                         Problem{.code = "unlogged",
                                 .subject = *names.begin(),
                                 .detail = list + is +
                                           " UNLOGGED: a crash of the server or a failover empties "
                                           "such a table, and may already have done so",
                                 .remedy = "run " + repair});
  });
}

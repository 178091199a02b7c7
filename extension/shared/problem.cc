#include "extension/shared/problem.h"

#include "extension/base/spi.h"

extern "C" {
#include <access/htup_details.h>
#include <utils/lsyscache.h>
#include <utils/typcache.h>
}

namespace postbox {

std::optional<Problem> ProblemRow() {
  if (IsNull(0, 1)) return std::nullopt;
  return Problem{TextColumn(0, 1), TextColumn(0, 2), TextColumn(0, 3), TextColumn(0, 4),
                 TextColumn(0, 5)};
}

Datum ProblemValue(Oid type, const Problem& problem) {
  TupleDesc descriptor = lookup_rowtype_tupdesc_copy(type, -1);
  bool nulls[] = {false, false, false, false, problem.remedy.empty()};
  const auto text = [](const std::string& value) { return CStringGetTextDatum(value.c_str()); };
  Datum values[] = {text(problem.code), text(problem.severity), text(problem.subject),
                    text(problem.detail), text(problem.remedy)};
  return HeapTupleGetDatum(heap_form_tuple(descriptor, values, nulls));
}

Datum ProblemResult(FunctionCallInfo fcinfo, const std::optional<Problem>& problem) {
  fcinfo->isnull = !problem.has_value();
  if (!problem) return Datum{0};
  return Pg([&] { return ProblemValue(get_func_rettype(fcinfo->flinfo->fn_oid), *problem); });
}

}  // namespace postbox

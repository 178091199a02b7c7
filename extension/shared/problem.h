// A problem that Postbox shows: postbox.problem. The functions whose names end in _problem return
// it; the status views and postbox.doctor() show what it says.
#ifndef POSTBOX_EXTENSION_SHARED_PROBLEM_H_
#define POSTBOX_EXTENSION_SHARED_PROBLEM_H_

#include <optional>
#include <string>

#include "extension/base/guard.h"

namespace postbox {

struct Problem {
  std::string code;                // of its kind, for programs: lower case, with underscores
  std::string severity = "error";  // or warning: all works still
  std::string subject;             // what has it: a table, a publication, a projection
  std::string detail;              // what it is, and the cause
  std::string remedy;              // what to do: a statement where one does it; empty: unknown
};

// The columns of a postbox.problem in the first row of SPI_tuptable; nothing if they are NULL.
std::optional<Problem> ProblemRow();

// Inside Pg(): a value of that type, whose OID is `type`.
Datum ProblemValue(Oid type, const Problem& problem);

// The result of a function that returns postbox.problem: NULL if there is none.
Datum ProblemResult(FunctionCallInfo fcinfo, const std::optional<Problem>& problem);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_SHARED_PROBLEM_H_

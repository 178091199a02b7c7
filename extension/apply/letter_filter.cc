#include "extension/apply/letter_filter.h"

#include "extension/apply/inbox_event.h"
#include "extension/base/arguments.h"

namespace postbox {

LetterFilter::LetterFilter(FunctionCallInfo fcinfo) {
  struct Condition {
    const char* sql;
    Oid type;
  };
  const Oid outcome = Pg([] { return PostboxType("outcome"); });
  const Condition conditions[kArguments] = {
      {"inbox = $", REGCLASSOID},       {"aggregate_type = $", TEXTOID},
      {"aggregate_id = $", TEXTOID},    {"event_type = $", TEXTOID},
      {"sqlstate = $", TEXTOID},        {"outcome = $", outcome},
      {"failed_at < $", TIMESTAMPTZOID}};
  for (int i = 0; i < kArguments; ++i) {
    if (!HasArgument(fcinfo, i)) continue;
    parameters_.Add(conditions[i].type, fcinfo->args[i].value);
    where_ += std::string(" AND d.") + conditions[i].sql + std::to_string(parameters_.size());
  }
}

}  // namespace postbox

// The function of a user that makes the payload of a row in a backfill: f(row) -> json, jsonb,
// bytea, or text that is JSON.
//
// It runs as the current user, who is the owner of the backfill, with a new snapshot for each row.
// Rule: the version of the event is counted before, which locks the aggregate. So what the function
// reads in other tables is not older than any event with a smaller version.
#ifndef POSTBOX_EXTENSION_EMIT_PAYLOAD_FUNCTION_H_
#define POSTBOX_EXTENSION_EMIT_PAYLOAD_FUNCTION_H_

#include "extension/base/statement.h"

extern "C" {
#include <executor/tuptable.h>
}

namespace postbox {

class PayloadFunction {
 public:
  // Needs SPI and FixedSearchPath, and so does the call. Throws undefined_function.
  PayloadFunction(const std::string& signature, Relation table);

  // The bytes of the payload, in the current memory context. Throws null_value_not_allowed, or
  // invalid_function_definition if the function returns something else than a payload.
  Datum Call(TupleTableSlot* row);

 private:
  std::string signature_;
  Statement call_;
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_EMIT_PAYLOAD_FUNCTION_H_

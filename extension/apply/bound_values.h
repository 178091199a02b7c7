// The values of one event, in the order of a projection's columns. They are palloc'd, in the
// context that was current. Each call has its own: a trigger on the target may apply another event
// to the same projection in between.
#ifndef POSTBOX_EXTENSION_APPLY_BOUND_VALUES_H_
#define POSTBOX_EXTENSION_APPLY_BOUND_VALUES_H_

#include "extension/base/postgres.h"
#include "proto/rules/json_scan.h"

namespace postbox {

struct BoundValues {
  explicit BoundValues(size_t count) : values(count), nulls(count, ' ') {}

  std::vector<Datum> values;
  std::vector<char> nulls;          // as SPI has it
  std::string present;              // '1' or '0' for each column
  std::vector<json::Value> fields;  // what was found in the payload
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_BOUND_VALUES_H_

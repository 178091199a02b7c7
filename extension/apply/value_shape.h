// Values inside of arrays and composite types, which jsonb_to_record converts: they follow the same
// rules as those of columns (column_value.h). So before it sees them, numbers for integers are
// written as whole numbers, and bytea is checked.
#ifndef POSTBOX_EXTENSION_APPLY_VALUE_SHAPE_H_
#define POSTBOX_EXTENSION_APPLY_VALUE_SHAPE_H_

#include "extension/base/guard.h"
#include "proto/rules/json_scan.h"

namespace postbox {

struct ValueShape {
  enum class Kind { kOther, kWhole, kBytes, kArray, kComposite };
  Kind kind = Kind::kOther;
  std::string name{};  // of a field of a composite type, in UTF-8
  // Of an array its elements; of a composite type the fields with something to do.
  std::vector<ValueShape> parts{};
};

// kOther if there is nothing to do for values of the type. Adds the relations of composite types in
// it: after ALTER TYPE it may have another shape.
ValueShape ShapeOf(Oid type, std::vector<Oid>* relations);

// The value, which is JSON, as jsonb_to_record may have it.
std::string ShapedValue(const ValueShape& shape, std::string_view value);

// A name, or another text of the database, in UTF-8.
std::string Utf8Text(const std::string& text);

// Throws what a JSON value for a column, or a part of one, of type bytea lacks. `text` is the value
// as text, that of a string without its quotes.
void RequireHexBytes(json::Kind kind, std::string_view text);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_VALUE_SHAPE_H_

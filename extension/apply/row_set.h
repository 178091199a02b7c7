// The statement that writes the rows of several events of a projection (event_set.h), each with a
// different key and with a value for every column:
//     INSERT ... SELECT FROM unnest(...) ON CONFLICT (key) DO UPDATE SET ...
//     WHERE stored.version < incoming.version RETURNING key
#ifndef POSTBOX_EXTENSION_APPLY_ROW_SET_H_
#define POSTBOX_EXTENSION_APPLY_ROW_SET_H_

#include "extension/apply/bound_values.h"
#include "extension/apply/projection_columns.h"
#include "extension/base/statement.h"

namespace postbox {

class RowSet {
 public:
  explicit RowSet(const ProjectionColumns& columns);

  // Whether the row may be written in a set: with all of its values, and so small that no server
  // refuses it for its size. So it is right, too, where a later row of its key is written instead.
  bool Takes(const BoundValues& row) const;
  // A copy in the current memory context.
  BoundValues Copy(const BoundValues& row) const;

  // Writes rows, and returns how many were: those without a row of their key that is as new. They
  // stand in the order given. Their keys can be read until the next statement.
  uint64 Write(std::span<const BoundValues* const> rows);
  BoundValues WrittenKey(uint64 row) const;

 private:
  struct Column {
    Oid type;
    int16 length;
    bool by_value;
    bool not_null;
  };
  std::vector<Column> columns_;
  size_t key_size_;
  Statement statement_;
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_ROW_SET_H_

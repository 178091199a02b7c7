// The key of a projection's rows: as one text, and read from it.
#ifndef POSTBOX_EXTENSION_APPLY_PROJECTION_KEY_H_
#define POSTBOX_EXTENSION_APPLY_PROJECTION_KEY_H_

#include "extension/apply/bound_values.h"
#include "extension/apply/column_value.h"
#include "extension/apply/projection_columns.h"

namespace postbox {

class ProjectionKey {
 public:
  // `context` lives as long as the key.
  ProjectionKey(const ProjectionColumns& columns, MemoryContext context);

  // The key as it is in a tombstone: keys that are equal have the same text. That of the only
  // column, or a JSON array of several.
  Datum Text(const BoundValues& key);
  // The same text, in the current memory context or in `key`.
  std::string_view View(const BoundValues& key);
  // Reads a key from such a text.
  BoundValues FromText(std::string_view text) const;

 private:
  struct Column {
    ColumnInput input;
    KeyForm form;
  };

  const std::string target_name_;
  std::vector<Column> columns_;
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_PROJECTION_KEY_H_

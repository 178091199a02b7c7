// Where a column's value comes from: what `columns` of a projection says, a JSON object of target
// column -> source.
//   "field"                     the JSON field of the payload
//   {"path": ["a", "b"]}        the JSON field b in a; {"path": "a.b"} is the same
//   {"path": ..., "as": "hex"}  the same, written in one of the forms of value_form.h
//   "$aggregate_id", ...        a field of the event itself, by its name in postbox.event
#ifndef POSTBOX_EXTENSION_APPLY_COLUMN_SOURCE_H_
#define POSTBOX_EXTENSION_APPLY_COLUMN_SOURCE_H_

#include "extension/apply/inbox_event.h"
#include "extension/apply/value_form.h"
#include "extension/base/spi.h"

namespace postbox {

struct ColumnSource {
  // A field of the event; otherwise `path` into the payload.
  std::optional<EventField> event_field;
  std::vector<std::string> path;
  ValueForm form = ValueForm::kPlain;
};

// The first `names` names of a path, as they are written in `columns`: author.name.
std::string PathText(const std::vector<std::string>& path, size_t names = SIZE_MAX);
// For messages: field "author.name", or $aggregate_id.
std::string SourceText(const ColumnSource& source);

// Reads `columns`. Needs an open SPI connection. Throws what is wrong; what has no meaning only if
// it is `strict`, as when a projection is made.
std::map<std::string, ColumnSource> ParseMapping(const std::string& columns, bool strict);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_COLUMN_SOURCE_H_

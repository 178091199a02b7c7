// The names of projections and handlers, which their functions take. `table` is projection or
// handler, without its schema.
#ifndef POSTBOX_EXTENSION_APPLY_CONSUMER_NAMES_H_
#define POSTBOX_EXTENSION_APPLY_CONSUMER_NAMES_H_

#include "extension/base/spi.h"

namespace postbox {

// Inserts a row with these columns, acting as the owner of the registry. Its name is `name`, or, if
// that is left out, the free name next to `suggestion`. Throws duplicate_object if `name` is taken.
void InsertNamed(const char* table, const std::optional<std::string>& name,
                 const std::string& suggestion, const std::string& columns, const Parameters& row);
// Runs an UPDATE that may set the name to `new_name`, acting as the owner of the registry. Throws
// duplicate_object if that is taken.
void UpdateNamed(const char* table, const std::optional<std::string>& new_name,
                 const std::string& sql, Parameters& row);

// The name as a SQL literal, for what a hint says to run.
std::string NameLiteral(const std::string& name);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_CONSUMER_NAMES_H_

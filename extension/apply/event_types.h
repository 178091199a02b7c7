// The event_types of projections and handlers, as arguments.
#ifndef POSTBOX_EXTENSION_APPLY_EVENT_TYPES_H_
#define POSTBOX_EXTENSION_APPLY_EVENT_TYPES_H_

#include "extension/base/postgres.h"

namespace postbox {

// The event types in a text[] of one dimension. Throws if there is a NULL, an empty text or a type
// twice; `name` is the argument's.
std::vector<std::string> ReadEventTypes(Datum array, const char* name);

// The types in both lists, for an error: "a", "b".
std::string CommonTypes(const std::vector<std::string>& left,
                        const std::vector<std::string>& right);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_EVENT_TYPES_H_

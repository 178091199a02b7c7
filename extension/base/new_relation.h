// The name of a table that is about to be made, as create_outbox and create_inbox take it:
// 'schema.table', or 'table' in the first schema of the search_path.
#ifndef POSTBOX_EXTENSION_BASE_NEW_RELATION_H_
#define POSTBOX_EXTENSION_BASE_NEW_RELATION_H_

#include "extension/base/postgres.h"

namespace postbox {

struct NewRelation {
  std::string schema;
  std::string name;

  // Quoted and qualified; with a suffix for what belongs to the table.
  std::string Qualified(std::string_view suffix = "") const;
};

// Resolves `text` with the search_path of the session. Throws if it is no name, if there is no such
// schema, if the caller may not create in it, if it is a temporary one, or if the name leaves no
// room for `suffix_length` more bytes.
NewRelation ParseNewRelation(std::string_view text, size_t suffix_length);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_BASE_NEW_RELATION_H_

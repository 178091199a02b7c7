// Looking up relations: their names for SQL text, their owners, and those of schema postbox.
#ifndef POSTBOX_EXTENSION_BASE_RELATION_H_
#define POSTBOX_EXTENSION_BASE_RELATION_H_

#include "extension/base/guard.h"

namespace postbox {

// An identifier, and a qualified name, for SQL text.
std::string Quoted(std::string_view identifier);
std::string Quoted(std::string_view schema, std::string_view name);

// The quoted qualified name of a relation; empty if there is none with that OID.
std::string RelationName(Oid relation);

// The relation of this quoted qualified name; InvalidOid if there is none. Needs SPI.
Oid RelationNamed(const std::string& name);

// The owner of a relation. Throws undefined_table if there is none with that OID.
Oid RelationOwner(Oid relation);
// Of a role; empty if there is none.
std::string RoleName(Oid role);

// A relation of schema postbox. Throws undefined_table if the extension is not there.
Oid PostboxRelation(const char* name);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_BASE_RELATION_H_

#include "extension/base/new_relation.h"

#include "extension/base/relation.h"

namespace postbox {

std::string NewRelation::Qualified(std::string_view suffix) const {
  return Quoted(schema, name + std::string(suffix));
}

NewRelation ParseNewRelation(std::string_view text, size_t suffix_length) {
  RangeVar* range = nullptr;
  const char* schema = nullptr;
  const bool temporary = Pg([&] {
    range = makeRangeVarFromNameList(textToQualifiedNameList(
        cstring_to_text_with_len(text.data(), static_cast<int>(text.size()))));
    const Oid schema_oid = RangeVarGetCreationNamespace(range);
    schema = get_namespace_name(schema_oid);
    const AclResult right = SchemaAclCheck(schema_oid, GetUserId(), ACL_CREATE);
    if (right != ACLCHECK_OK) aclcheck_error(right, OBJECT_SCHEMA, schema);
    return isAnyTempNamespace(schema_oid);
  });
  NewRelation relation{schema, range->relname};
  if (temporary) {
    Throw(ERRCODE_INVALID_TABLE_DEFINITION, "table \"" + relation.name + "\" may not be temporary",
          "Other processes must be able to see it.", "Name a permanent schema.");
  }
  const size_t longest = NAMEDATALEN - 1 - suffix_length;
  if (relation.name.size() > longest) {
    Throw(ERRCODE_NAME_TOO_LONG, "name \"" + relation.name + "\" is too long",
          "Indexes and further tables are named after it, which leaves " + std::to_string(longest) +
              " bytes.");
  }
  return relation;
}

}  // namespace postbox

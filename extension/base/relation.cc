#include "extension/base/relation.h"

#include "extension/base/spi.h"

namespace postbox {

std::string Quoted(std::string_view identifier) {
  const std::string copy(identifier);
  return Pg([&] { return quote_identifier(copy.c_str()); });
}

std::string Quoted(std::string_view schema, std::string_view name) {
  return Quoted(schema) + "." + Quoted(name);
}

std::string RelationName(Oid relation) {
  const char* name = Pg([&]() -> const char* { return get_rel_name(relation); });
  if (name == nullptr) return "";
  const char* schema =
      Pg([&]() -> const char* { return get_namespace_name(get_rel_namespace(relation)); });
  return schema == nullptr ? "" : Quoted(schema, name);
}

Oid RelationNamed(const std::string& name) {
  Parameters parameters;
  parameters.AddText(name);
  Run("SELECT pg_catalog.to_regclass($1)::pg_catalog.oid", parameters);
  return OidColumn(0, 1);
}

Oid PostboxRelation(const char* name) {
  const Oid schema = Pg([] { return get_namespace_oid("postbox", false); });
  const Oid relation = Pg([&] { return get_relname_relid(name, schema); });
  if (!OidIsValid(relation)) {
    Throw(ERRCODE_UNDEFINED_TABLE, std::string("relation \"postbox.") + name + "\" does not exist",
          "", "Run CREATE EXTENSION postbox in this database.");
  }
  return relation;
}

std::string RoleName(Oid role) {
  const char* name = Pg([&]() -> const char* { return GetUserNameFromId(role, true); });
  return name == nullptr ? "" : name;
}

Oid RelationOwner(Oid relation) {
  HeapTuple tuple = Pg([&] { return SearchSysCache1(RELOID, ObjectIdGetDatum(relation)); });
  if (!HeapTupleIsValid(tuple)) {
    Throw(ERRCODE_UNDEFINED_TABLE,
          "relation with OID " + std::to_string(relation) + " does not exist");
  }
  const Oid owner = reinterpret_cast<Form_pg_class>(GETSTRUCT(tuple))->relowner;
  ReleaseSysCache(tuple);
  return owner;
}

}  // namespace postbox

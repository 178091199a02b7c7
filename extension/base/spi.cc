#include "extension/spi.h"

namespace postbox {

SpiConnection::SpiConnection() : exceptions_(std::uncaught_exceptions()) {
  Pg([] { SPI_connect(); });
}

SpiConnection::~SpiConnection() {
  if (std::uncaught_exceptions() == exceptions_) SPI_finish();
}

Parameters& Parameters::AddText(std::string_view text) {
  return Push(TEXTOID, Pg([&] {
                return PointerGetDatum(
                    cstring_to_text_with_len(text.data(), static_cast<int>(text.size())));
              }),
              false);
}

Parameters& Parameters::Push(Oid type, Datum value, bool null) {
  types_.push_back(type);
  values_.push_back(value);
  nulls_.push_back(null ? 'n' : ' ');
  return *this;
}

namespace {

uint64 Check(int result) {
  if (result < 0) {
    Throw(ERRCODE_INTERNAL_ERROR,
          std::string("could not run a statement: ") + SPI_result_code_string(result));
  }
  return SPI_processed;
}

}  // namespace

uint64 Run(const std::string& sql) {
  return Check(Pg([&] { return SPI_execute(sql.c_str(), false, 0); }));
}

uint64 Run(const std::string& sql, Parameters& parameters) {
  return Check(Pg([&] {
    return SPI_execute_with_args(sql.c_str(), parameters.size(), parameters.types(),
                                 parameters.values(), parameters.nulls(), false, 0);
  }));
}

Datum FirstRow(int column, bool* null) {
  bool is_null = true;
  const Datum value = Pg([&] {
    return SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, column, &is_null);
  });
  if (null != nullptr) *null = is_null;
  return is_null ? Datum{0} : value;
}

std::string FirstRowText(int column) {
  const char* text = Pg([&]() -> const char* {
    return SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, column);
  });
  return text == nullptr ? "" : text;
}

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

ActAs::ActAs(Oid role, Trust trust) {
  GetUserIdAndSecContext(&saved_role_, &saved_context_);
  int context = saved_context_ | SECURITY_LOCAL_USERID_CHANGE;
  if (trust == Trust::kRestricted) context |= SECURITY_RESTRICTED_OPERATION;
  SetUserIdAndSecContext(role, context);
}

ActAs::~ActAs() { SetUserIdAndSecContext(saved_role_, saved_context_); }

FixedSearchPath::FixedSearchPath(const char* path)
    : nest_level_(NewGUCNestLevel()), exceptions_(std::uncaught_exceptions()) {
  Pg([&] {
    set_config_option("search_path", path, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0,
                      false);
  });
}

FixedSearchPath::~FixedSearchPath() {
  // After an error the abort of the (sub)transaction restores all settings.
  if (std::uncaught_exceptions() == exceptions_) AtEOXact_GUC(false, nest_level_);
}

void LockRegistration(const char* registry, Oid relation) {
  const ActAs registrar(RelationOwner(PostboxRelation(registry)));
  Parameters key;
  key.AddOid(REGCLASSOID, relation);
  const std::string sql =
      std::string("SELECT FROM postbox.") + registry + " WHERE relation = $1 FOR UPDATE";
  if (Run(sql, key) != 0) return;
  Throw(ERRCODE_UNDEFINED_TABLE,
        std::string(registry) + " with OID " + std::to_string(relation) + " does not exist",
        "It has just been dropped.");
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

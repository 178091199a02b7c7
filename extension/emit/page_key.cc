#include "extension/emit/page_key.h"

#include "extension/base/arguments.h"
#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "extension/trust/owner_rights.h"
#include "extension/trust/pinned_settings.h"

namespace postbox {
namespace {

// The type under a domain, which may have another collation than the column, as a cast has it.
std::string BaseTypeName(Oid type, int32 typmod, bool is_modified) {
  return Pg([&]() -> const char* {
    const Oid base = getBaseTypeAndTypmod(type, &typmod);
    return format_type_extended(base, is_modified ? typmod : -1,
                                FORMAT_TYPE_TYPEMOD_GIVEN | FORMAT_TYPE_FORCE_QUALIFY);
  });
}

std::string Literal(const std::string& text) {
  return Pg([&]() -> const char* { return quote_literal_cstr(text.c_str()); });
}

// The key of the first row in this order; empty if the table is empty.
KeyTexts FirstKey(Oid relation, const PageKey& key, const std::string& order) {
  const uint64 rows = Run("SELECT " + key.Columns() + " FROM " + RowsOf(relation) + " ORDER BY " +
                          order + " LIMIT 1");
  KeyTexts texts;
  for (size_t i = 0; rows != 0 && i < key.names().size(); ++i) {
    texts.push_back(PrintedColumn(0, static_cast<int>(i) + 1));
  }
  return texts;
}

}  // namespace

PageKey::PageKey(Oid relation) {
  Parameters parameters;
  parameters.AddOid(REGCLASSOID, relation);
  const uint64 columns = Run(
      "SELECT a.attname::text, a.atttypid::oid, a.atttypmod, quote_ident(n.nspname), "
      "coalesce((SELECT format(' COLLATE %I.%I', cn.nspname, l.collname) FROM pg_collation l "
      "JOIN pg_namespace cn ON cn.oid = l.collnamespace WHERE l.oid = a.attcollation), '') "
      "FROM pg_index i "
      "CROSS JOIN LATERAL unnest(i.indkey, i.indclass) WITH ORDINALITY AS k(number, class, place) "
      "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number "
      "JOIN pg_opclass c ON c.oid = k.class JOIN pg_namespace n ON n.oid = c.opcnamespace "
      "WHERE i.indrelid = $1 AND i.indisprimary AND i.indisvalid AND k.place <= i.indnkeyatts "
      "ORDER BY k.place",
      parameters);
  if (columns == 0) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE,
          "table " + RelationName(relation) + " has no primary key",
          "A backfill goes through the table in the order of the primary key.",
          "Add one: ALTER TABLE ... ADD PRIMARY KEY (...).");
  }
  struct Type {
    Oid type;
    int32 typmod;
    std::string collation;
  };
  std::vector<Type> types;
  search_path_ = "pg_catalog";
  for (uint64 i = 0; i < columns; ++i) {
    names_.push_back(TextColumn(i, 1));
    types.push_back({OidColumn(i, 2), Int32Column(i, 3), TextColumn(i, 5)});
    const std::string schema = TextColumn(i, 4);
    if (schema != "pg_catalog") search_path_ += ", " + schema;
  }
  search_path_ += ", pg_temp";
  for (const Type& column : types) {
    const bool is_domain = Pg([&] { return getBaseType(column.type) != column.type; });
    const std::string base = BaseTypeName(column.type, column.typmod, false);
    const std::string name = Quoted(names_[types_.size()]);
    operands_.push_back(is_domain ? name + "::" + base : name);
    casts_.push_back(BaseTypeName(column.type, column.typmod, true));
    types_.push_back(base + column.collation);
  }
}

std::string PageKey::List(const char* suffix) const {
  std::string list;
  for (const std::string& name : names_) {
    list += (list.empty() ? "" : ", ") + Quoted(name) + suffix;
  }
  return list;
}

std::string PageKey::Compared(const char* how, const KeyTexts& texts) const {
  std::string columns;
  std::string values;
  for (size_t i = 0; i < texts.size(); ++i) {
    columns += (i == 0 ? "" : ", ") + operands_[i];
    values += (i == 0 ? "" : ", ") + Literal(texts[i]) + "::" + casts_[i];
  }
  return "(" + columns + ") " + how + " (" + values + ")";
}

std::string RowsOf(Oid relation) {
  const bool is_partitioned =
      Pg([&] { return get_rel_relkind(relation) == RELKIND_PARTITIONED_TABLE; });
  return (is_partitioned ? "" : "ONLY ") + RelationName(relation);
}

void RequireReadCommitted() {
  if (!IsolationUsesXactSnapshot()) return;
  Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, "a backfill needs isolation level READ COMMITTED",
        "Under another level it would not see what other transactions have committed meanwhile.",
        "Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.");
}

void PreferIndexes() {
  Pg([] {
    for (const char* other : {"enable_seqscan", "enable_bitmapscan"}) {
      set_config_option(other, "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
    }
  });
}

}  // namespace postbox

// (relation, OUT columns, OUT types, OUT first, OUT last)
POSTBOX_FUNCTION(key_range) {
  using namespace postbox;
  return Guarded([&]() -> Datum {
    RequireReadCommitted();
    const Oid relation = OidArgument(fcinfo, 0, "relation");
    TupleDesc descriptor = nullptr;
    Pg([&] { get_call_result_type(fcinfo, nullptr, &descriptor); });
    KeyTexts columns;
    KeyTexts types;
    KeyTexts first;
    KeyTexts last;
    {
      const SpiConnection connection;
      const FixedSearchPath search_path;
      const PageKey key(relation);
      const FixedSearchPath path_of_key(key.search_path().c_str());
      const OwnerRights no_policies(GetUserId());
      PinSettings();
      PreferIndexes();
      columns = key.names();
      types = key.types();
      first = FirstKey(relation, key, key.Columns());
      last = FirstKey(relation, key, key.Descending());
    }
    Datum values[] = {TextArrayValue(columns), TextArrayValue(types), TextArrayValue(first),
                      TextArrayValue(last)};
    bool nulls[] = {false, false, first.empty(), last.empty()};
    return Pg([&] {
      return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(descriptor), values, nulls));
    });
  });
}

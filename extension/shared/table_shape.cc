#include "extension/shared/table_shape.h"

#include "extension/base/relation.h"

extern "C" {
#include <commands/defrem.h>
}

namespace postbox {
namespace {

struct FoundColumn {
  std::string type;
  bool has_default;
};

struct FoundIndex {
  std::string name;  // quoted and qualified
  std::string keys;
  std::string predicate;
  bool unique;
};

// The server writes more parentheses and line ends than we do, and differently from release to
// release.
std::string Bare(const std::string& expression) {
  std::string bare;
  std::copy_if(expression.begin(), expression.end(), std::back_inserter(bare),
               [](char c) { return c != '(' && c != ')' && c != ' ' && c != '\n'; });
  return bare;
}

std::map<std::string, FoundColumn> ColumnsOf(Oid relation) {
  Parameters key;
  key.AddOid(REGCLASSOID, relation);
  const uint64 rows =
      Run("SELECT attname::pg_catalog.text, pg_catalog.format_type(atttypid, NULL), "
          "atthasdef OR attidentity OPERATOR(pg_catalog.<>) '' FROM pg_catalog.pg_attribute "
          "WHERE attrelid OPERATOR(pg_catalog.=) $1 AND attnum OPERATOR(pg_catalog.>) 0 "
          "AND NOT attisdropped",
          key);
  std::map<std::string, FoundColumn> columns;
  for (uint64 row = 0; row < rows; ++row) {
    columns[TextColumn(row, 1)] = {TextColumn(row, 2), BoolColumn(row, 3)};
  }
  return columns;
}

std::vector<FoundIndex> IndexesOf(Oid relation) {
  Parameters key;
  key.AddOid(REGCLASSOID, relation);
  const uint64 rows =
      Run("SELECT pg_catalog.format('%I.%I', n.nspname, x.relname), "
          "(SELECT pg_catalog.string_agg(pg_catalog.pg_get_indexdef(i.indexrelid, k.n, true), ', ' "
          "ORDER BY k.n) FROM pg_catalog.generate_series(1, i.indnkeyatts::int) AS k(n)), "
          "coalesce(pg_catalog.pg_get_expr(i.indpred, i.indrelid, true), ''), "
          "i.indisunique AND i.indimmediate FROM pg_catalog.pg_index i "
          "JOIN pg_catalog.pg_class x ON x.oid OPERATOR(pg_catalog.=) i.indexrelid "
          "JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) x.relnamespace "
          "JOIN pg_catalog.pg_am m ON m.oid OPERATOR(pg_catalog.=) x.relam "
          "WHERE i.indrelid OPERATOR(pg_catalog.=) $1 AND i.indisvalid "
          "AND m.amname OPERATOR(pg_catalog.=) 'btree' "
          "AND 0 OPERATOR(pg_catalog.=) ALL (i.indoption) ORDER BY i.indexrelid",
          key);
  std::vector<FoundIndex> indexes;
  for (uint64 row = 0; row < rows; ++row) {
    indexes.push_back({TextColumn(row, 1), Bare(TextColumn(row, 2)), Bare(TextColumn(row, 3)),
                       BoolColumn(row, 4)});
  }
  return indexes;
}

bool Is(const FoundIndex& index, const IndexShape& shape) {
  return index.keys == Bare(shape.keys) && index.predicate == Bare(shape.predicate);
}

std::string Definition(const ColumnShape& column) {
  return column.name + " " + column.type + (column.not_null ? " NOT NULL" : "") +
         (column.default_value.empty() ? "" : " DEFAULT " + column.default_value) + column.more;
}

// Nothing if the column cannot be put back.
std::vector<std::string> AddStatements(const std::string& table, const ColumnShape& column) {
  if (!column.can_be_added) return {};
  const std::string add = "ALTER TABLE " + table + " ADD COLUMN " + Definition(column);
  if (!column.not_null || !column.default_value.empty()) return {add};
  if (column.filler.empty()) return {};
  return {add + " DEFAULT " + column.filler,
          "ALTER TABLE " + table + " ALTER COLUMN " + column.name + " DROP DEFAULT"};
}

void FindColumnFlaws(Oid relation, const std::string& table, const TableShape& shape,
                     std::vector<Flaw>* flaws) {
  const std::map<std::string, FoundColumn> columns = ColumnsOf(relation);
  for (const ColumnShape& expected : shape.columns) {
    const std::string name = "column \"" + expected.name + "\"";
    const auto found = columns.find(expected.name);
    if (found == columns.end()) {
      flaws->push_back({table, name + " does not exist", AddStatements(table, expected)});
      continue;
    }
    const std::string& type = found->second.type;
    if (type != expected.type && !(expected.type == "text" && type == "character varying")) {
      flaws->push_back({table, name + " has type " + type + " instead of " + expected.type, {}});
    }
    if (!expected.default_value.empty() && !found->second.has_default) {
      flaws->push_back({table,
                        name + " has no default",
                        {"ALTER TABLE " + table + " ALTER COLUMN " + expected.name +
                         " SET DEFAULT " + expected.default_value}});
    }
  }
}

}  // namespace

std::vector<std::string> CreateStatements(const TableShape& shape, const std::string& schema,
                                          const std::string& name) {
  const std::string table = Quoted(schema, name);
  std::string columns;
  for (const ColumnShape& column : shape.columns) {
    columns += (columns.empty() ? "" : ", ") + Definition(column);
  }
  if (!shape.primary_key.empty()) columns += ", PRIMARY KEY (" + shape.primary_key + ")";
  std::vector<std::string> statements = {"CREATE TABLE " + table + " (" + columns + ")" +
                                         shape.options};
  const Oid schema_id = Pg([&] { return get_namespace_oid(schema.c_str(), false); });
  for (const IndexShape& index : shape.indexes) {
    statements.push_back(CreateIndexStatement(index, table, schema_id, name));
  }
  statements.push_back("COMMENT ON TABLE " + table + " IS '" + shape.comment + "'");
  return statements;
}

std::string CreateIndexStatement(const IndexShape& index, const std::string& table, Oid schema,
                                 const std::string& base) {
  const std::string name = Pg([&]() -> const char* {
    const std::string_view suffix(index.suffix);
    return ChooseRelationName(base.c_str(), nullptr, suffix.data() + 1, schema, false);
  });
  return "CREATE INDEX " + Quoted(name) + " ON " + table + " (" + index.keys + ")" +
         (index.predicate.empty() ? "" : " WHERE " + index.predicate);
}

std::vector<Flaw> FindFlaws(Oid relation, const TableShape& shape) {
  std::vector<Flaw> flaws;
  const std::string table = RelationName(relation);
  FindColumnFlaws(relation, table, shape, &flaws);
  // Without a column there is no index on it.
  if (std::any_of(flaws.begin(), flaws.end(), [](const Flaw& flaw) { return flaw.repair.empty(); }))
    return flaws;
  const std::vector<FoundIndex> indexes = IndexesOf(relation);
  const bool has_key = shape.primary_key.empty() ||
                       std::any_of(indexes.begin(), indexes.end(), [&](const FoundIndex& i) {
                         return i.unique && Is(i, {"", shape.primary_key, ""});
                       });
  if (!has_key) {
    flaws.push_back({table,
                     "no unique index on (" + shape.primary_key + ")",
                     {"ALTER TABLE " + table + " ADD PRIMARY KEY (" + shape.primary_key + ")"}});
  }
  const Oid schema = Pg([&] { return get_rel_namespace(relation); });
  const std::string name = Pg([&]() -> const char* { return get_rel_name(relation); });
  for (const IndexShape& expected : shape.indexes) {
    if (std::any_of(indexes.begin(), indexes.end(),
                    [&](const FoundIndex& index) { return Is(index, expected); })) {
      continue;
    }
    flaws.push_back({table,
                     "no valid index on (" + expected.keys + ")" +
                         (expected.predicate.empty() ? "" : " WHERE " + expected.predicate),
                     {CreateIndexStatement(expected, table, schema, name)}});
  }
  return flaws;
}

std::vector<std::string> FindIndexes(Oid relation, const std::vector<IndexShape>& indexes) {
  std::vector<std::string> names;
  for (const FoundIndex& index : IndexesOf(relation)) {
    if (std::any_of(indexes.begin(), indexes.end(),
                    [&](const IndexShape& shape) { return Is(index, shape); })) {
      names.push_back(index.name);
    }
  }
  return names;
}

}  // namespace postbox

#include "extension/apply/shadow_layout.h"

#include "extension/base/relation.h"

extern "C" {
#include <access/table.h>
#include <optimizer/optimizer.h>
#include <rewrite/rewriteHandler.h>
}

namespace postbox {
namespace {

size_t Place(std::vector<ShadowLayout::Column>* columns, const ProjectionColumn& column) {
  for (size_t i = 0; i < columns->size(); ++i) {
    if ((*columns)[i].name == column.name) return i;
  }
  columns->push_back({.name = column.name,
                      .type = column.type,
                      .typmod = column.typmod,
                      .collation = column.collation,
                      .not_null = column.not_null,
                      .required = false,
                      .moving = false,
                      .default_value = "",
                      .version = 0});
  return columns->size() - 1;
}

std::string SetColumn(const std::string& row) {
  return (row.empty() ? "" : row + ".") + kSetColumn;
}

}  // namespace

ShadowLayout::ShadowLayout(const std::vector<ProjectionConfig>& projections)
    : target_(projections[0].target) {
  for (const ProjectionConfig& config : projections) AddWriter(ResolveColumns(config));
  for (const Column& column : columns_) {
    if (column.name != kSetColumn && column.name != kDeletedColumn) continue;
    Throw(ERRCODE_DUPLICATE_COLUMN,
          "table " + target_name_ + " has a column \"" + column.name + "\", which is projected",
          "The shadow of a rebuild has a column of this name.", "Rename the column.");
  }
  ReadDefaults();
}

void ShadowLayout::AddWriter(const ProjectionColumns& resolved) {
  if (key_.empty()) {
    target_name_ = resolved.target_name;
    key_operators_ = resolved.key_operators;
    for (size_t i = 0; i < resolved.key_size; ++i) Place(&key_, resolved.columns[i]);
  }
  Writer writer{Place(&versions_, resolved.version()), {}};
  for (size_t i = resolved.key_size + 1; i < resolved.columns.size(); ++i) {
    const ProjectionColumn& column = resolved.columns[i];
    const size_t place = Place(&columns_, column);
    columns_[place].required = columns_[place].required || !column.by_chance;
    columns_[place].version = writer.version;
    writer.columns.push_back(place);
  }
  writers_.push_back(std::move(writer));
}

void ShadowLayout::ReadDefaults() {
  for (std::vector<Column>* columns : {&columns_, &versions_}) {
    for (Column& column : *columns) {
      const AttrNumber number = Pg([&] { return get_attnum(target_, column.name.c_str()); });
      column.moving = Pg([&] {
        Relation relation = table_open(target_, AccessShareLock);
        Node* value = build_column_default(relation, number);
        table_close(relation, AccessShareLock);
        return value != nullptr && contain_mutable_functions(value);
      });
      if (column.moving) continue;
      Parameters key;
      key.AddOid(OIDOID, target_).AddInt(number);
      if (Run("SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef d WHERE d.adrelid = $1 "
              "AND d.adnum = $2",
              key) > 0) {
        column.default_value = TextColumn(0, 1);
      }
    }
  }
}

std::string ShadowLayout::Mask(const std::vector<size_t>& bits_set) const {
  std::string mask(bits(), '0');
  for (const size_t bit : bits_set) mask[bit] = '1';
  return mask;
}

ShadowMarks ShadowLayout::Marks(size_t number) const {
  const Writer& writer = writers_[number];
  ShadowMarks marks;
  marks.touched = Mask({TouchedBit(number)});
  std::vector<size_t> begun = {BegunBit(writer.version)};
  for (size_t i = 0; i < columns_.size(); ++i) {
    const Column& column = columns_[i];
    if (column.version == writer.version && column.required && !column.moving) begun.push_back(i);
  }
  marks.begun = Mask(begun);
  for (const size_t column : writer.columns) marks.columns[columns_[column].name] = Mask({column});
  return marks;
}

std::string ShadowLayout::HasBit(const std::string& row, size_t bit) {
  return "get_bit(" + SetColumn(row) + ", " + std::to_string(bit) + ") = 1";
}

std::string ShadowLayout::HasBits(const std::string& row, const std::string& mask) {
  return "(" + SetColumn(row) + " & B'" + mask + "') = B'" + mask + "'";
}

std::string ShadowLayout::Complete(const std::string& row) const {
  std::string condition;
  for (size_t i = 0; i < writers_.size(); ++i) {
    std::vector<size_t> required;
    for (const size_t column : writers_[i].columns) {
      if (columns_[column].required) required.push_back(column);
    }
    condition += (i == 0 ? "(" : " AND (") + std::string("NOT ") + HasBit(row, TouchedBit(i)) +
                 " OR " + HasBit(row, BegunBit(writers_[i].version)) + " OR " +
                 HasBits(row, Mask(required)) + ")";
  }
  return "(" + condition + ")";
}

std::string ShadowLayout::Full(const std::string& row, size_t version) const {
  std::vector<size_t> all;
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (columns_[i].version == version) all.push_back(i);
  }
  return "(" + HasBit(row, BegunBit(version)) + " OR " + HasBits(row, Mask(all)) + ")";
}

std::string ShadowLayout::ColumnDefinition(const Column& column) const {
  Parameters parameters;
  parameters.AddOid(OIDOID, column.type).AddInt(column.typmod).AddOid(OIDOID, column.collation);
  Run("SELECT format_type($1, $2), (SELECT format(' COLLATE %I.%I', n.nspname, c.collname) "
      "FROM pg_collation c JOIN pg_namespace n ON n.oid = c.collnamespace WHERE c.oid = $3)",
      parameters);
  return Quoted(column.name) + " " + TextColumn(0, 1) + TextColumn(0, 2) +
         (column.default_value.empty() ? "" : " DEFAULT (" + column.default_value + ")");
}

// A column that no event has set need not have a value while events may be missing, or if the
// target gives it one.
std::string ShadowLayout::NotNullCheck(size_t number) const {
  const Column& column = columns_[number];
  std::string free = "NOT " + HasBit("", number);
  if (!column.moving) free = "(" + free + " AND NOT " + HasBit("", BegunBit(column.version)) + ")";
  return std::string("CONSTRAINT ") + kRequiredCheck + std::to_string(number) + " CHECK (" +
         kDeletedColumn + " OR " + free + " OR " + Quoted(column.name) + " IS NOT NULL)";
}

// What the target demands of the columns that are projected, of rows that are complete.
std::vector<std::string> ShadowLayout::Checks() const {
  std::vector<std::string> checks;
  std::vector<std::string> names;
  for (const std::vector<Column>* columns : {&key_, &columns_, &versions_}) {
    for (const Column& column : *columns) names.push_back(column.name);
  }
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (columns_[i].not_null) checks.push_back(NotNullCheck(i));
  }
  std::vector<std::string> moving;
  for (const Column& column : columns_) {
    if (column.moving) moving.push_back(column.name);
  }
  Parameters key;
  key.AddOid(OIDOID, target_).Add(TEXTARRAYOID, TextArrayValue(names));
  key.Add(TEXTARRAYOID, TextArrayValue(moving));
  const uint64 rows =
      Run("SELECT pg_get_expr(c.conbin, c.conrelid) FROM pg_constraint c CROSS JOIN LATERAL "
          "(SELECT array_agg(a.attname::text) AS names FROM pg_attribute a "
          "WHERE a.attrelid = c.conrelid AND a.attnum = ANY (c.conkey)) n "
          "WHERE c.conrelid = $1 AND c.contype = 'c' AND n.names <@ $2 AND NOT n.names && $3 "
          "ORDER BY c.conname",
          key);
  for (const std::string& expression : TextColumns(rows, 1)) {
    checks.push_back(std::string("CHECK (") + kDeletedColumn + " OR NOT " + Complete("") + " OR (" +
                     expression + "))");
  }
  return checks;
}

std::string ShadowLayout::CreateTable(const std::string& name) const {
  std::string sql = "CREATE TABLE " + name + " (";
  std::string key_names;
  for (const Column& column : key_) {
    sql += ColumnDefinition(column) + ", ";
    key_names += (key_names.empty() ? "" : ", ") + Quoted(column.name);
  }
  for (const std::vector<Column>* columns : {&versions_, &columns_}) {
    for (const Column& column : *columns) sql += ColumnDefinition(column) + ", ";
  }
  const std::string type = "bit(" + std::to_string(bits()) + ")";
  sql += std::string(kSetColumn) + " " + type + " NOT NULL DEFAULT B'" + Mask({}) + "', " +
         kDeletedColumn + " boolean NOT NULL DEFAULT false, PRIMARY KEY (" + key_names + ")";
  for (const std::string& check : Checks()) sql += ", " + check;
  return sql + ")";
}

}  // namespace postbox

#include "extension/apply/column_source.h"

#include "extension/base/arguments.h"

namespace postbox {
namespace {

std::string EventFieldNames() {
  std::string names;
  for (size_t i = 0; i < kEventFields; ++i) {
    if (i > 0) names += ", ";
    names += std::string("$") + EventFieldName(static_cast<EventField>(i));
  }
  return names;
}

ColumnSource EventSource(std::string_view name, const std::string& column) {
  for (size_t i = 0; i < kEventFields; ++i) {
    if (name == EventFieldName(static_cast<EventField>(i))) {
      return {static_cast<EventField>(i), {}, ValueForm::kPlain};
    }
  }
  Throw(ERRCODE_INVALID_PARAMETER_VALUE,
        "unknown source \"$" + std::string(name) + "\" for column \"" + column + "\"", "",
        "Fields of the event are " + EventFieldNames() +
            ". A JSON field whose name begins with $ is written {\"path\": [\"$name\"]}.");
}

[[noreturn]] void ThrowBadSource(const std::string& column) {
  Throw(ERRCODE_INVALID_PARAMETER_VALUE, "invalid source for column \"" + column + "\"", "",
        "A source is the name of a JSON field, {\"path\": [\"outer\", \"inner\"]}, or a field of "
        "the event: " +
            EventFieldNames() + ".");
}

// {"path": ..., "as": ...}, columns 4 to 6 of the query below.
ColumnSource PathSource(uint64 row, const std::string& column, bool strict) {
  if (IsNull(row, 4)) ThrowBadSource(column);
  const std::string other = TextColumn(row, 6);
  if (strict && !other.empty()) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE,
          "unknown key \"" + other + "\" in the source for column \"" + column + "\"", "",
          "The keys of a source are path and, optionally, as.");
  }
  ColumnSource source;
  if (!IsNull(row, 5)) {
    const std::string name = TextColumn(row, 5);
    const std::optional<ValueForm> form = FindForm(name);
    if (!form) {
      Throw(ERRCODE_INVALID_PARAMETER_VALUE,
            "column \"" + column + "\" cannot be read as \"" + name + "\"", "", FormsAndTypes());
    }
    source.form = *form;
  }
  source.path = TextArrayArgument(DatumColumn(row, 4), "path");
  if (source.path.empty()) ThrowBadSource(column);
  for (const std::string& part : source.path) {
    if (part.empty()) ThrowBadSource(column);
  }
  return source;
}

}  // namespace

std::string PathText(const std::vector<std::string>& path, size_t names) {
  std::string text;
  for (size_t i = 0; i < std::min(names, path.size()); ++i) {
    text += (text.empty() ? "" : ".") + path[i];
  }
  return text;
}

std::string SourceText(const ColumnSource& source) {
  if (source.event_field) return std::string("$") + EventFieldName(*source.event_field);
  return "field \"" + PathText(source.path) + "\"";
}

std::map<std::string, ColumnSource> ParseMapping(const std::string& columns, bool strict) {
  // Parsed by the server.
  static constexpr char kSql[] =
      "SELECT key, pg_catalog.jsonb_typeof(value), value OPERATOR(pg_catalog.#>>) '{}', "
      "       CASE WHEN pg_catalog.jsonb_typeof(value) OPERATOR(pg_catalog.=) 'object' THEN "
      "         CASE pg_catalog.jsonb_typeof(value OPERATOR(pg_catalog.->) 'path') "
      "           WHEN 'string' THEN pg_catalog.string_to_array(value OPERATOR(pg_catalog.->>) "
      "'path', '.') "
      "           WHEN 'array' THEN ARRAY(SELECT CASE pg_catalog.jsonb_typeof(e) WHEN 'string' "
      "THEN e OPERATOR(pg_catalog.#>>) '{}' END "
      "                                   FROM pg_catalog.jsonb_array_elements(value "
      "OPERATOR(pg_catalog.->) 'path') e) "
      "         END END, "
      "       value OPERATOR(pg_catalog.->>) 'as', "
      "       (SELECT pg_catalog.min(k) FROM pg_catalog.jsonb_object_keys(CASE WHEN "
      "pg_catalog.jsonb_typeof(value) OPERATOR(pg_catalog.=) 'object' THEN value ELSE '{}' END) k "
      "WHERE k OPERATOR(pg_catalog.<>) ALL ('{path,as}'::pg_catalog.text[])) "
      "FROM pg_catalog.jsonb_each($1::pg_catalog.jsonb)";
  Parameters parameters;
  parameters.AddText(columns);
  const uint64 rows = Run(kSql, parameters);
  std::map<std::string, ColumnSource> mapping;
  for (uint64 row = 0; row < rows; ++row) {
    const std::string column = TextColumn(row, 1);
    if (TextColumn(row, 2) != "string") {
      mapping[column] = PathSource(row, column, strict);
      continue;
    }
    const std::string source = TextColumn(row, 3);
    if (source.empty()) ThrowBadSource(column);
    mapping[column] = source[0] == '$' ? EventSource(std::string_view(source).substr(1), column)
                                       : ColumnSource{std::nullopt, {source}};
  }
  return mapping;
}

}  // namespace postbox

#include "extension/apply/consumer_names.h"

#include "extension/registry/registered_names.h"
#include "extension/trust/registrar.h"

extern "C" {
#include <mb/pg_wchar.h>
#include <utils/builtins.h>
}

namespace postbox {
namespace {

[[noreturn]] void ThrowTaken(const char* table, const std::string& name) {
  Throw(ERRCODE_DUPLICATE_OBJECT, std::string(table) + " \"" + name + "\" already exists", "",
        "Choose another name, or change it with postbox.alter_" + std::string(table) + ".");
}

// app.video, app.video_2, app.video_3, ...: none is too long.
std::string Candidate(const std::string& suggestion, int number) {
  const std::string suffix = number == 1 ? "" : "_" + std::to_string(number);
  const int room = NAMEDATALEN - 1 - static_cast<int>(suffix.size());
  const int length = static_cast<int>(suggestion.size());
  const int kept = Pg([&] { return pg_mbcliplen(suggestion.c_str(), length, room); });
  return suggestion.substr(0, kept) + suffix;
}

}  // namespace

void InsertNamed(const char* table, const std::optional<std::string>& name,
                 const std::string& suggestion, const std::string& columns, const Parameters& row) {
  if (name.has_value()) CheckRegisteredName(table, *name);
  std::string values;
  for (int i = 1; i <= row.size() + 1; ++i) values += (i > 1 ? ", $" : "$") + std::to_string(i);
  const std::string sql = "INSERT INTO postbox." + std::string(table) + " (" + columns +
                          ", name) VALUES (" + values + ") ON CONFLICT (name) DO NOTHING";
  const Registrar registrar(table);
  for (int number = 1;; ++number) {
    Parameters named = row;
    named.AddText(name.has_value() ? *name : Candidate(suggestion, number));
    if (Run(sql, named) > 0) return;
    if (name.has_value()) ThrowTaken(table, *name);
  }
}

void UpdateNamed(const char* table, const std::optional<std::string>& new_name,
                 const std::string& sql, Parameters& row) {
  if (new_name.has_value()) CheckRegisteredName(table, *new_name);
  const Registrar registrar(table);
  try {
    Run(sql, row);
  } catch (const PostgresError& error) {
    if (error.sqlstate != ERRCODE_UNIQUE_VIOLATION || !new_name.has_value()) throw;
    ThrowTaken(table, *new_name);
  }
}

std::string NameLiteral(const std::string& name) {
  return Pg([&]() -> const char* { return quote_literal_cstr(name.c_str()); });
}

}  // namespace postbox

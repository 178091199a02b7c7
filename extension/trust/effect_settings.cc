#include "extension/trust/effect_settings.h"

#include "extension/base/spi.h"
#include "extension/trust/act_as.h"
#include "extension/trust/pinned_settings.h"

extern "C" {
#include <access/gin.h>
#include <catalog/pg_authid.h>
#include <commands/trigger.h>
#include <parser/parse_expr.h>
#include <parser/parser.h>
#include <tsearch/ts_cache.h>
#include <utils/guc.h>

// As in utils/pg_locale.h, see pinned_settings.cc.
extern PGDLLIMPORT char* locale_numeric;
extern PGDLLIMPORT char* locale_time;
}

namespace postbox {
namespace {

void Pin(const char* name, const char* value) {
  // Some are for superusers; a session has them from ALTER ROLE ... SET.
  Pg([&] {
    set_config_option(name, value, PGC_SUSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
  });
}

// What PL/pgSQL has been loaded for this session or not.
void PinPlpgsql() {
  struct Setting {
    const char* name;
    const char* value;
  };
  constexpr Setting kSettings[] = {{"plpgsql.variable_conflict", "error"},
                                   {"plpgsql.check_asserts", "on"},
                                   {"plpgsql.extra_errors", "none"}};
  for (const Setting& setting : kSettings) {
    const char* now = Pg([&] { return GetConfigOption(setting.name, true, false); });
    if (now != nullptr && std::strcmp(now, setting.value) != 0) Pin(setting.name, setting.value);
  }
}

// Whether the value that the session began with is that of its database or of the server.
bool IsForAllRoles(const config_generic* setting) {
  return setting->reset_source <= PGC_S_DATABASE;
}

}  // namespace

void PinEffects(const std::string& text_search) {
  PinSettings();
  struct Setting {
    const char* name;
    const char* value;
    bool is_so;
  };
  const Setting settings[] = {
      {"session_replication_role", "origin",
       SessionReplicationRole == SESSION_REPLICATION_ROLE_ORIGIN},
      {"row_security", "on", row_security},
      {"transform_null_equals", "off", !Transform_null_equals},
      {"standard_conforming_strings", "on", standard_conforming_strings},
      {"backslash_quote", "safe_encoding", backslash_quote == BACKSLASH_QUOTE_SAFE_ENCODING},
      {"gin_fuzzy_search_limit", "0", GinFuzzySearchLimit == 0},
      {"lc_numeric", "C", std::strcmp(locale_numeric, "C") == 0},
      {"lc_time", "C", std::strcmp(locale_time, "C") == 0},
      {"default_text_search_config", text_search.c_str(),
       std::strcmp(TSCurrentConfig, text_search.c_str()) == 0},
  };
  for (const Setting& setting : settings) {
    if (!setting.is_so) Pin(setting.name, setting.value);
  }
  PinPlpgsql();
}

std::string TextSearchConfig() {
  constexpr char kName[] = "default_text_search_config";
  static const config_generic* const setting = Pg([&] { return FindSetting(kName); });
  if (setting == nullptr || IsForAllRoles(setting)) {
    return Pg([&] { return GetConfigOptionResetString(kName); });
  }
  // The role has its own value.
  const ActAs superuser(BOOTSTRAP_SUPERUSERID);
  Run("SELECT coalesce("
      "(SELECT pg_catalog.substr(c, 28) FROM pg_catalog.pg_db_role_setting s, "
      "pg_catalog.unnest(s.setconfig) c WHERE s.setrole OPERATOR(pg_catalog.=) 0 "
      "AND s.setdatabase OPERATOR(pg_catalog.=) ANY (ARRAY[0, (SELECT d.oid FROM "
      "pg_catalog.pg_database d WHERE d.datname OPERATOR(pg_catalog.=) "
      "pg_catalog.current_database())]) "
      "AND pg_catalog.starts_with(c, 'default_text_search_config=') "
      "ORDER BY s.setdatabase DESC LIMIT 1), "
      "(SELECT f.setting FROM pg_catalog.pg_file_settings f WHERE pg_catalog.lower(f.name) "
      "OPERATOR(pg_catalog.=) 'default_text_search_config' AND f.error IS NULL "
      "ORDER BY f.seqno DESC LIMIT 1), "
      "(SELECT s.boot_val FROM pg_catalog.pg_settings s "
      "WHERE s.name OPERATOR(pg_catalog.=) 'default_text_search_config'))");
  return TextColumn(0, 1);
}

}  // namespace postbox

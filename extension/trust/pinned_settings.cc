#include "extension/trust/pinned_settings.h"

extern "C" {
#include <miscadmin.h>
#include <pgtime.h>
#include <utils/array.h>
#include <utils/bytea.h>
#include <utils/float.h>
#include <utils/guc.h>
#include <utils/xml.h>

// As in utils/pg_locale.h, which cannot be included: it needs ICU's headers wherever the server was
// built with ICU, and the packages of a server's headers do not bring them.
extern PGDLLIMPORT char* locale_monetary;
}

namespace postbox {

void PinSettings() {
  struct Setting {
    const char* name;
    const char* value;
    bool is_so;
  };
  const Setting settings[] = {
      {"DateStyle", "ISO, MDY", DateStyle == USE_ISO_DATES && DateOrder == DATEORDER_MDY},
      {"IntervalStyle", "postgres", IntervalStyle == INTSTYLE_POSTGRES},
      {"TimeZone", "UTC", std::strcmp(pg_get_timezone_name(session_timezone), "UTC") == 0},
      {"timezone_abbreviations", "Default",
       std::strcmp(Pg([] { return GetConfigOption("timezone_abbreviations", false, false); }),
                   "Default") == 0},
      {"lc_monetary", "C", std::strcmp(locale_monetary, "C") == 0},
      {"bytea_output", "hex", bytea_output == BYTEA_OUTPUT_HEX},
      {"extra_float_digits", "1", extra_float_digits == 1},
      {"xmloption", "content", xmloption == XMLOPTION_CONTENT},
      {"xmlbinary", "base64", xmlbinary == XMLBINARY_BASE64},
      {"array_nulls", "on", Array_nulls},
  };
  for (const Setting& setting : settings) {
    if (setting.is_so) continue;
    Pg([&] {
      set_config_option(setting.name, setting.value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE,
                        true, 0, false);
    });
  }
}

}  // namespace postbox

// How the text or the number of a JSON field says a value, where `columns` names it: {"path": "b",
// "as": "base64"}.
//
//   base64                     bytea: base64 or base64url (RFC 4648), with or without padding
//   hex                        bytea: two digits a byte; \x may stand before them
//   epoch_seconds, epoch_milliseconds, epoch_microseconds
//                              timestamptz, timestamp or date: a number since 1970-01-01 00:00 UTC,
//                              with a fraction or not, or a text with such a number
//   utc                        timestamp or date: a time with an offset, as it is in UTC
// A timestamp or date has no time zone; it gets the time or the day in UTC.
#ifndef POSTBOX_EXTENSION_APPLY_VALUE_FORM_H_
#define POSTBOX_EXTENSION_APPLY_VALUE_FORM_H_

#include "extension/base/postgres.h"
#include "proto/rules/json_scan.h"

namespace postbox {

enum class ValueForm {
  kPlain,  // as INSERT would read the text
  kBase64,
  kHex,
  kUtc,
  kEpochSeconds,
  kEpochMilliseconds,
  kEpochMicroseconds,
};

// Nothing if there is no such form.
std::optional<ValueForm> FindForm(std::string_view name);
const char* FormName(ValueForm form);
// The names of all forms with their types, for hints.
const char* FormsAndTypes();
// Whether columns of the type, which is no domain, take the form.
bool FormFits(ValueForm form, Oid base_type);

// The value of a base type with its modifier. `text` is the JSON string as the database has it;
// nullptr for a number. May ereport: call it inside Pg().
Datum ValueInForm(ValueForm form, Oid base_type, int32 typmod, const json::Value& value,
                  const char* text);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_VALUE_FORM_H_

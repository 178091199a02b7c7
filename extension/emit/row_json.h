// How row_to_json writes the values of some types, without looking up their functions and casts for
// each row.
//
// The types are those whose JSON depends on no setting and runs no function of a user. timestamptz
// is one of them: it is written in UTC, as row_to_json does while TimeZone is pinned
// (pinned_settings.h). Domains over them are written like them.
//
// Call these inside Pg().
#ifndef POSTBOX_EXTENSION_EMIT_ROW_JSON_H_
#define POSTBOX_EXTENSION_EMIT_ROW_JSON_H_

#include "extension/base/postgres.h"

namespace postbox {

// kOther: a type that is left to row_to_json.
enum class JsonKind : uint8 {
  kOther,
  kBool,
  kInt2,
  kInt4,
  kInt8,
  kNumeric,
  kText,
  kUuid,
  kDate,
  kTimestamp,
  kTimestampTz,
  kJson,
  kJsonb,
};

JsonKind JsonKindOf(Oid type);

// Whether the text of a type, beside its JSON, depends on no setting either.
bool HasFixedText(JsonKind kind);

// Appends a value that is not NULL and not of kOther.
void AppendJson(StringInfo to, JsonKind kind, Datum value);

// Appends a text as a string.
void AppendJsonString(StringInfo to, std::string_view text);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_EMIT_ROW_JSON_H_

#include "extension/emit/row_json.h"

extern "C" {
#include <utils/datetime.h>
#include <utils/fmgrprotos.h>
#include <utils/json.h>
#include <utils/jsonb.h>
}

namespace postbox {
namespace {

std::string_view ViewOf(const text* value) {
  return {VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value)};
}

void AppendView(StringInfo to, std::string_view text) {
  appendBinaryStringInfo(to, text.data(), static_cast<int>(text.size()));
}

void AppendInt(StringInfo to, int64 value) {
  char digits[MAXINT8LEN + 1];
  appendBinaryStringInfo(to, digits, pg_lltoa(value, digits));
}

// NaN and the infinities are strings.
void AppendNumeric(StringInfo to, Datum value) {
  const char* digits = DatumGetCString(DirectFunctionCall1(numeric_out, value));
  if (digits[digits[0] == '-' ? 1 : 0] <= '9') {
    appendStringInfoString(to, digits);
  } else {
    AppendJsonString(to, digits);
  }
}

void AppendMoment(StringInfo to, Oid type, Datum value) {
  constexpr int kUtc = 0;
  char text[MAXDATELEN + 1];
  JsonEncodeDateTime(text, value, type, type == TIMESTAMPTZOID ? &kUtc : nullptr);
  appendStringInfoChar(to, '"');
  appendStringInfoString(to, text);
  appendStringInfoChar(to, '"');
}

using Escape = std::array<char, 7>;

// What stands for each byte of a string; empty if that is the byte itself.
constexpr std::array<Escape, 256> kEscapes = [] {
  constexpr char kHex[] = "0123456789abcdef";
  std::array<Escape, 256> escapes{};
  for (size_t byte = 0; byte < ' '; ++byte) {
    escapes[byte] = {'\\', 'u', '0', '0', kHex[byte / 16], kHex[byte % 16]};
  }
  escapes['\b'] = {'\\', 'b'};
  escapes['\f'] = {'\\', 'f'};
  escapes['\n'] = {'\\', 'n'};
  escapes['\r'] = {'\\', 'r'};
  escapes['\t'] = {'\\', 't'};
  escapes['"'] = {'\\', '"'};
  escapes['\\'] = {'\\', '\\'};
  return escapes;
}();

}  // namespace

JsonKind JsonKindOf(Oid type) {
  switch (getBaseType(type)) {
    case BOOLOID:
      return JsonKind::kBool;
    case INT2OID:
      return JsonKind::kInt2;
    case INT4OID:
      return JsonKind::kInt4;
    case INT8OID:
      return JsonKind::kInt8;
    case NUMERICOID:
      return JsonKind::kNumeric;
    case TEXTOID:
    case VARCHAROID:
    case BPCHAROID:
      return JsonKind::kText;
    case UUIDOID:
      return JsonKind::kUuid;
    case DATEOID:
      return JsonKind::kDate;
    case TIMESTAMPOID:
      return JsonKind::kTimestamp;
    case TIMESTAMPTZOID:
      return JsonKind::kTimestampTz;
    case JSONOID:
      return JsonKind::kJson;
    case JSONBOID:
      return JsonKind::kJsonb;
    default:
      return JsonKind::kOther;
  }
}

bool HasFixedText(JsonKind kind) {
  return kind != JsonKind::kOther && kind != JsonKind::kDate && kind != JsonKind::kTimestamp &&
         kind != JsonKind::kTimestampTz;
}

void AppendJson(StringInfo to, JsonKind kind, Datum value) {
  switch (kind) {
    case JsonKind::kBool:
      return appendStringInfoString(to, DatumGetBool(value) ? "true" : "false");
    case JsonKind::kInt2:
      return AppendInt(to, DatumGetInt16(value));
    case JsonKind::kInt4:
      return AppendInt(to, DatumGetInt32(value));
    case JsonKind::kInt8:
      return AppendInt(to, DatumGetInt64(value));
    case JsonKind::kNumeric:
      return AppendNumeric(to, value);
    case JsonKind::kText:
      return AppendJsonString(to, ViewOf(DatumGetTextPP(value)));
    case JsonKind::kUuid:
      return AppendJsonString(to, DatumGetCString(DirectFunctionCall1(uuid_out, value)));
    case JsonKind::kDate:
      return AppendMoment(to, DATEOID, value);
    case JsonKind::kTimestamp:
      return AppendMoment(to, TIMESTAMPOID, value);
    case JsonKind::kTimestampTz:
      return AppendMoment(to, TIMESTAMPTZOID, value);
    case JsonKind::kJson:
      return AppendView(to, ViewOf(DatumGetTextPP(value)));
    case JsonKind::kJsonb: {
      Jsonb* jsonb = DatumGetJsonbP(value);
      JsonbToCString(to, &jsonb->root, VARSIZE(jsonb));
      return;
    }
    case JsonKind::kOther:
      elog(ERROR, "a value that has to be left to row_to_json");
  }
}

void AppendJsonString(StringInfo to, std::string_view text) {
  appendStringInfoChar(to, '"');
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const Escape& escape = kEscapes[static_cast<unsigned char>(text[i])];
    if (escape[0] == '\0') continue;
    AppendView(to, text.substr(begin, i - begin));
    appendStringInfoString(to, escape.data());
    begin = i + 1;
  }
  AppendView(to, text.substr(begin));
  appendStringInfoChar(to, '"');
}

}  // namespace postbox

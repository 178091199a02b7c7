#include "extension/apply/value_form.h"

#include "proto/rules/json_number.h"

extern "C" {
#include <common/int.h>
#include <utils/date.h>
}

namespace postbox {
namespace {

struct FormInfo {
  ValueForm form;
  const char* name;
  int places;  // of an epoch: the zeros that make microseconds of it
};
constexpr FormInfo kForms[] = {
    {ValueForm::kBase64, "base64", 0},
    {ValueForm::kHex, "hex", 0},
    {ValueForm::kUtc, "utc", 0},
    {ValueForm::kEpochSeconds, "epoch_seconds", 6},
    {ValueForm::kEpochMilliseconds, "epoch_milliseconds", 3},
    {ValueForm::kEpochMicroseconds, "epoch_microseconds", 0},
};

const FormInfo& InfoOf(ValueForm form) {
  for (const FormInfo& info : kForms) {
    if (info.form == form) return info;
  }
  return kForms[0];
}

// What `decode` takes: the alphabet of plain base64, with padding.
Datum PlainBase64(const char* text) {
  StringInfoData plain;
  initStringInfo(&plain);
  for (const char* at = text; *at != '\0'; ++at) {
    if (std::strchr(" \n\r\t", *at) != nullptr) continue;
    appendStringInfoChar(&plain, *at == '-' ? '+' : *at == '_' ? '/' : *at);
  }
  while (plain.len > 0 && plain.data[plain.len - 1] == '=') plain.data[--plain.len] = '\0';
  // `decode` would go on behind it.
  if (std::strchr(plain.data, '=') != nullptr) {
    ereport(ERROR, (errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
                    errmsg("invalid base64: there is text behind the padding")));
  }
  while (plain.len % 4 != 0) appendStringInfoChar(&plain, '=');
  return PointerGetDatum(cstring_to_text_with_len(plain.data, plain.len));
}

Datum DecodedBytes(ValueForm form, const char* text) {
  Datum plain;
  if (form == ValueForm::kBase64) {
    plain = PlainBase64(text);
  } else {
    const bool marked = text[0] == '\\' && text[1] == 'x';
    plain = CStringGetTextDatum(marked ? text + 2 : text);
  }
  return DirectFunctionCall2(binary_decode, plain, CStringGetTextDatum(FormName(form)));
}

// A number, or a text that is one.
std::string_view NumberIn(ValueForm form, const json::Value& value, const char* text) {
  const std::string_view number = text == nullptr ? value.text : std::string_view(text);
  json::Scanner scanner(number);
  if (scanner.Peek() != json::Kind::kNumber || !scanner.SkipValue() || !scanner.AtEnd()) {
    ereport(ERROR, (errcode(ERRCODE_INVALID_DATETIME_FORMAT),
                    errmsg("invalid number of %s: \"%.*s\"", FormName(form),
                           static_cast<int>(std::min<size_t>(number.size(), 100)), number.data())));
  }
  return number;
}

Timestamp EpochTime(ValueForm form, std::string_view number) {
  constexpr int64 kEpoch =
      static_cast<int64>(POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY;
  const std::optional<std::int64_t> scaled = json::Scaled(number, InfoOf(form).places);
  int64 time = 0;
  if (!scaled || pg_sub_s64_overflow(*scaled, kEpoch, &time) || !IS_VALID_TIMESTAMP(time)) {
    ereport(ERROR, (errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
                    errmsg("%s out of range: \"%.*s\"", FormName(form),
                           static_cast<int>(std::min<size_t>(number.size(), 100)), number.data())));
  }
  return time;
}

// In UTC, timestamptz and timestamp are the same number.
Datum TimeOf(Oid base_type, int32 typmod, Timestamp time) {
  Datum value = TimestampGetDatum(time);
  if (base_type == DATEOID) return DirectFunctionCall1(timestamp_date, value);
  if (typmod < 0) return value;
  return DirectFunctionCall2(base_type == TIMESTAMPOID ? timestamp_scale : timestamptz_scale, value,
                             Int32GetDatum(typmod));
}

}  // namespace

std::optional<ValueForm> FindForm(std::string_view name) {
  for (const FormInfo& info : kForms) {
    if (name == info.name) return info.form;
  }
  return std::nullopt;
}

const char* FormName(ValueForm form) { return InfoOf(form).name; }

const char* FormsAndTypes() {
  return "base64 and hex are for bytea; epoch_seconds, epoch_milliseconds and epoch_microseconds "
         "for timestamptz, timestamp and date; utc for timestamp and date.";
}

bool FormFits(ValueForm form, Oid base_type) {
  switch (form) {
    case ValueForm::kPlain:
      return true;
    case ValueForm::kBase64:
    case ValueForm::kHex:
      return base_type == BYTEAOID;
    case ValueForm::kUtc:
      return base_type == TIMESTAMPOID || base_type == DATEOID;
    default:
      return base_type == TIMESTAMPTZOID || base_type == TIMESTAMPOID || base_type == DATEOID;
  }
}

Datum ValueInForm(ValueForm form, Oid base_type, int32 typmod, const json::Value& value,
                  const char* text) {
  const bool epoch = InfoOf(form).places > 0 || form == ValueForm::kEpochMicroseconds;
  const bool number = epoch && value.kind == json::Kind::kNumber;
  if (!number && value.kind != json::Kind::kString) {
    ereport(ERROR,
            (errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
             errmsg("%s must be a JSON string%s", FormName(form), epoch ? " or number" : "")));
  }
  if (epoch) return TimeOf(base_type, typmod, EpochTime(form, NumberIn(form, value, text)));
  if (form != ValueForm::kUtc) return DecodedBytes(form, text);
  const Datum time = DirectFunctionCall3(timestamptz_in, CStringGetDatum(text),
                                         ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
  return TimeOf(base_type, typmod, DatumGetTimestampTz(time));
}

}  // namespace postbox

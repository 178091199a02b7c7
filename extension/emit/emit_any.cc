// outbox_emit with arguments of any type: the forms that PostgreSQL takes where those with types do
// not fit (sql/install/functions/20_emit.sql has the rules by which it chooses).
//
// What is taken has one text, whatever the settings of the session: numbers without a fraction,
// uuids, enums, strings, and domains over them. What has not is refused with the cast to write.
#include "extension/base/message_bytes.h"
#include "extension/emit/emit.h"

extern "C" {
#include <utils/fmgrprotos.h>
}

namespace postbox {
namespace {

// The type of an argument, or that below a domain.
Oid TypeOfArgument(FunctionCallInfo fcinfo, EmitArgument argument) {
  const Oid type = Pg([&] { return get_fn_expr_argtype(fcinfo->flinfo, argument); });
  if (OidIsValid(type)) return Pg([&] { return getBaseType(type); });
  Throw(ERRCODE_INDETERMINATE_DATATYPE,
        "could not determine the type of argument " + std::to_string(argument + 1) +
            " of outbox_emit",
        "", "Call it in an SQL statement.");
}

std::string NameOfType(Oid type) {
  return Pg([&]() -> const char* { return format_type_be(type); });
}

bool IsString(Oid type) {
  return Pg([&] {
    char category = TYPCATEGORY_INVALID;
    bool preferred = false;
    get_type_category_preferred(type, &category, &preferred);
    return category == TYPCATEGORY_STRING;
  });
}

// As text, what the type prints.
Datum PrintedText(Oid type, Datum value) {
  return Pg([&] {
    Oid output = InvalidOid;
    bool is_varlena = false;
    getTypeOutputInfo(type, &output, &is_varlena);
    return CStringGetTextDatum(OidOutputFunctionCall(output, value));
  });
}

// A string as text: a literal without a type, or of any type of strings. An implicit cast removes
// the blanks at the end of a char(n); so does this.
Datum StringText(Oid type, Datum value) {
  switch (type) {
    case UNKNOWNOID:
      return Pg([&] { return CStringGetTextDatum(DatumGetCString(value)); });
    case TEXTOID:
    case VARCHAROID:
      return value;
    case BPCHAROID:
      return Pg([&] { return DirectFunctionCall1(rtrim1, value); });
    default:
      return PrintedText(type, value);
  }
}

// A numeric without a fraction: 5, and 5.00, too.
Datum WholeText(Datum value, const char* name) {
  std::string digits =
      Pg([&]() -> const char* { return DatumGetCString(DirectFunctionCall1(numeric_out, value)); });
  const size_t point = digits.find('.');
  if (point != std::string::npos && digits.find_first_not_of('0', point + 1) == std::string::npos) {
    digits.resize(point);
  }
  if (digits.find_first_not_of("0123456789", digits.starts_with('-') ? 1 : 0) !=
      std::string::npos) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE,
          std::string(name) + " " + digits + " is not a whole number", "",
          std::string("Pass it as text: ") + name + " => (...)::text.");
  }
  return Pg([&] { return CStringGetTextDatum(digits.c_str()); });
}

[[noreturn]] void ThrowNoText(Oid type, const char* name) {
  const std::string text = std::string(name) + " => ";
  std::string hint = "Cast it: " + text + "(...)::text.";
  if (type == BYTEAOID) hint = "Pass its text: " + text + "encode(..., 'hex').";
  if (type == JSONOID || type == JSONBOID) hint = "Take a field of it: " + text + "... ->> 'id'.";
  Throw(ERRCODE_DATATYPE_MISMATCH, std::string(name) + " has type " + NameOfType(type),
        "It must be text. Numbers without a fraction, uuid and enum types are converted.", hint);
}

// An argument that is text for an event.
NullableDatum AsText(FunctionCallInfo fcinfo, EmitArgument argument, const char* name) {
  const NullableDatum& given = fcinfo->args[argument];
  if (given.isnull) return given;
  const Oid type = TypeOfArgument(fcinfo, argument);
  switch (type) {
    case INT2OID:
    case INT4OID:
    case INT8OID:
    case UUIDOID:
      return {PrintedText(type, given.value), false};
    case NUMERICOID:
      return {WholeText(given.value, name), false};
    default:
      if (type == UNKNOWNOID || IsString(type)) return {StringText(type, given.value), false};
      if (Pg([&] { return type_is_enum(type); })) return {PrintedText(type, given.value), false};
      ThrowNoText(type, name);
  }
}

NullableDatum AsJsonb(FunctionCallInfo fcinfo, EmitArgument argument) {
  const NullableDatum& given = fcinfo->args[argument];
  if (given.isnull || TypeOfArgument(fcinfo, argument) == JSONBOID) return given;
  return {Pg([&] {
            return DirectFunctionCall1(jsonb_in, CStringGetDatum(TextDatumGetCString(given.value)));
          }),
          false};
}

Datum PayloadBytes(FunctionCallInfo fcinfo) {
  const Datum payload = fcinfo->args[kPayload].value;
  const Oid type = TypeOfArgument(fcinfo, kPayload);
  switch (type) {
    case JSONBOID:
      return Pg([&] { return BytesOfJsonb(payload); });
    case JSONOID:
      return Pg([&] { return BytesOfText(payload); });
    case BYTEAOID:
      return Pg([&] { return PointerGetDatum(DatumGetByteaPP(payload)); });
    default:
      break;
  }
  if (type == UNKNOWNOID || IsString(type)) return BytesOfJsonText(StringText(type, payload));
  Throw(ERRCODE_DATATYPE_MISMATCH, "payload has type " + NameOfType(type),
        "A payload must be jsonb, json, text that is JSON, or bytea.",
        "Convert it to JSON: payload => to_jsonb(...).");
}

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(outbox_emit_any) {
  using namespace postbox;
  return Guarded([&] {
    RequirePayload(fcinfo->args[kPayload]);
    std::array<NullableDatum, kEmitArguments> arguments;
    std::copy_n(fcinfo->args, arguments.size(), arguments.begin());
    arguments[kAggregateId] = AsText(fcinfo, kAggregateId, "aggregate_id");
    arguments[kSchemaVersion] = AsText(fcinfo, kSchemaVersion, "schema_version");
    arguments[kAttributes] = AsJsonb(fcinfo, kAttributes);
    return Emit(fcinfo, arguments.data(), PayloadBytes(fcinfo));
  });
}

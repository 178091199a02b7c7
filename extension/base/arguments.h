// The arguments of a SQL function, checked: NULL where none is allowed is an error that names it.
#ifndef POSTBOX_EXTENSION_BASE_ARGUMENTS_H_
#define POSTBOX_EXTENSION_BASE_ARGUMENTS_H_

#include <optional>

#include "extension/base/guard.h"
#include "extension/base/spi.h"

namespace postbox {

inline bool HasArgument(FunctionCallInfo fcinfo, int number) {
  return !fcinfo->args[number].isnull;
}

inline Datum Argument(FunctionCallInfo fcinfo, int number, const char* name) {
  if (fcinfo->args[number].isnull) {
    Throw(ERRCODE_NULL_VALUE_NOT_ALLOWED, std::string(name) + " may not be null");
  }
  return fcinfo->args[number].value;
}

inline std::string TextArgument(FunctionCallInfo fcinfo, int number, const char* name) {
  const Datum value = Argument(fcinfo, number, name);
  return Pg([&]() -> const char* { return TextDatumGetCString(value); });
}

// Nothing if it is NULL.
inline std::optional<std::string> OptionalText(FunctionCallInfo fcinfo, int number) {
  if (!HasArgument(fcinfo, number)) return std::nullopt;
  return TextArgument(fcinfo, number, "");
}

inline Oid OidArgument(FunctionCallInfo fcinfo, int number, const char* name) {
  return DatumGetObjectId(Argument(fcinfo, number, name));
}

// The first arguments as they are, for a statement; the types are those of the SQL function.
inline Parameters ArgumentsAsParameters(FunctionCallInfo fcinfo, std::initializer_list<Oid> types) {
  Parameters parameters;
  int argument = 0;
  for (const Oid type : types) {
    if (HasArgument(fcinfo, argument)) {
      parameters.Add(type, fcinfo->args[argument].value);
    } else {
      parameters.AddNull(type);
    }
    ++argument;
  }
  return parameters;
}

// A text[] without NULLs; `name` is the argument's.
inline std::vector<std::string> TextArrayArgument(Datum array, const char* name) {
  Datum* values = nullptr;
  bool* nulls = nullptr;
  int count = 0;
  Pg([&] {
    deconstruct_array(DatumGetArrayTypeP(array), TEXTOID, -1, false, TYPALIGN_INT, &values, &nulls,
                      &count);
  });
  std::vector<std::string> texts;
  for (int i = 0; i < count; ++i) {
    if (nulls[i]) {
      Throw(ERRCODE_NULL_VALUE_NOT_ALLOWED, std::string(name) + " may not contain null");
    }
    texts.emplace_back(Pg([&]() -> const char* { return TextDatumGetCString(values[i]); }));
  }
  return texts;
}

// An interval in microseconds; a day has 24 hours and a month 30 days, as interval comparison has
// it.
inline int64 Microseconds(Datum interval) {
  const Interval* value = DatumGetIntervalP(interval);
  const int64 days = static_cast<int64>(value->month) * DAYS_PER_MONTH + value->day;
  int64 microseconds = 0;
  if (__builtin_mul_overflow(days, USECS_PER_DAY, &microseconds) ||
      __builtin_add_overflow(microseconds, value->time, &microseconds)) {
    return days < 0 ? PG_INT64_MIN : PG_INT64_MAX;
  }
  return microseconds;
}

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_BASE_ARGUMENTS_H_

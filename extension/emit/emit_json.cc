// postbox.outbox_emit_json: outbox_emit with one signature, for clients that are generated from the
// catalogs. The event is a JSON object whose keys are the names of the arguments. The payload is
// sent as it is written in it.
#include "extension/base/arguments.h"
#include "extension/base/message_bytes.h"
#include "extension/emit/emit.h"
#include "proto/rules/json_scan.h"

extern "C" {
#include <utils/fmgrprotos.h>
}

namespace postbox {
namespace {

// The keys of an event: the names of the arguments, in their order. The outbox is none.
constexpr std::array<std::string_view, kEmitArguments> kEventKeys = {
    "aggregate_type", "aggregate_id", "event_type",  "payload",         "version", "schema_version",
    "attributes",     "event_id",     "occurred_at", "source_event_id", "",        "deliver_at",
    "expires_at",     "key_may_pass"};

constexpr char kKeysHint[] =
    "The required keys are aggregate_type, aggregate_id, event_type and payload. The optional keys "
    "are version, schema_version, attributes, event_id, occurred_at, source_event_id, deliver_at, "
    "expires_at and key_may_pass.";

Datum JsonbOf(std::string_view json) {
  return Pg([&] {
    return DirectFunctionCall1(jsonb_in, CStringGetDatum(pnstrdup(json.data(), json.size())));
  });
}

// A string, or a whole number as it is written, as a C string; nullptr if it is neither.
const char* StringOrNumber(std::string_view json) {
  if (json.front() == '"') {
    const Datum jsonb = JsonbOf(json);
    return Pg([&]() -> const char* {
      JsonbValue value;
      JsonbExtractScalar(&DatumGetJsonbP(jsonb)->root, &value);
      return pnstrdup(value.val.string.val, value.val.string.len);
    });
  }
  const size_t digits = json.front() == '-' ? 1 : 0;
  if (json.find_first_not_of("0123456789", digits) != std::string_view::npos) return nullptr;
  return Pg([&]() -> const char* { return pnstrdup(json.data(), json.size()); });
}

// The argument with that number, of the type that Emit() wants. Errors name its key.
Datum ArgumentOf(size_t number, std::string_view json) {
  const std::string key(kEventKeys[number]);
  try {
    if (number == kAttributes) return JsonbOf(json);
    if (number == kKeyMayPass && (json == "true" || json == "false")) {
      return BoolGetDatum(json == "true");
    }
    const char* text = StringOrNumber(json);
    if (text == nullptr) {
      Throw(ERRCODE_INVALID_PARAMETER_VALUE, "the value must be a string or a whole number");
    }
    return Pg([&]() -> Datum {
      switch (number) {
        case kVersion:
          return DirectFunctionCall1(int8in, CStringGetDatum(text));
        case kEventId:
          return DirectFunctionCall1(uuid_in, CStringGetDatum(text));
        case kKeyMayPass:
          return DirectFunctionCall1(boolin, CStringGetDatum(text));
        case kOccurredAt:
        case kDeliverAt:
        case kExpiresAt:
          return DirectFunctionCall3(timestamptz_in, CStringGetDatum(text),
                                     ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
        default:
          return CStringGetTextDatum(text);
      }
    });
  } catch (PostgresError& error) {
    error.message = "key \"" + key + "\" of the event: " + error.message;
    throw;
  }
}

size_t NumberOfKey(std::string_view key) {
  const auto* found = std::find(kEventKeys.begin(), kEventKeys.end(), key);
  if (!key.empty() && found != kEventKeys.end())
    return static_cast<size_t>(found - kEventKeys.begin());
  Throw(ERRCODE_INVALID_PARAMETER_VALUE, "unknown key of an event: \"" + std::string(key) + "\"",
        "", key == "outbox" ? "The outbox is the second argument of outbox_emit_json." : kKeysHint);
}

Datum EmitJson(FunctionCallInfo fcinfo) {
  const Datum event = Argument(fcinfo, 0, "event");
  const text* plain = Pg([&] { return DatumGetTextPP(event); });
  json::Scanner scanner({VARDATA_ANY(plain), VARSIZE_ANY_EXHDR(plain)});
  scanner.SkipSpace();
  if (!scanner.Take('{')) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE, "the event must be a JSON object", "", kKeysHint);
  }
  std::array<NullableDatum, kEmitArguments> arguments;
  arguments.fill({Datum{0}, true});
  arguments[kOutbox] = fcinfo->args[1];
  std::array<bool, kEmitArguments> given{};
  for (json::ObjectMember member; json::NextMember(&scanner, &member);) {
    const auto& [key, escaped, json] = member;
    const size_t number = NumberOfKey(key);
    if (std::exchange(given[number], true)) {
      Throw(ERRCODE_INVALID_PARAMETER_VALUE,
            "the event has the key \"" + std::string(key) + "\" more than once");
    }
    if (json == "null") continue;
    if (number == kPayload) {
      const std::string_view written = json;
      arguments[kPayload] = {Pg([&] {
                               return BytesOfText(PointerGetDatum(cstring_to_text_with_len(
                                   written.data(), static_cast<int>(written.size()))));
                             }),
                             false};
    } else {
      arguments[number] = {ArgumentOf(number, json), false};
    }
  }
  RequirePayload(arguments[kPayload]);
  return Emit(fcinfo, arguments.data(), arguments[kPayload].value);
}

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(outbox_emit_json) {
  return postbox::Guarded([&] { return postbox::EmitJson(fcinfo); });
}

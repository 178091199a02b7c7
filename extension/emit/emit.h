// What the forms of outbox_emit have in common.
//
//  - emit.cc: the forms with types. Untyped literals and parameters go to the one with text.
//  - emit_any.cc: those with arguments of any type, for keys that are numbers, uuids or enums, for
//    json, and for schema versions that are numbers.
//  - emit_json.cc: outbox_emit_json, the form with one signature.
//
// Each turns its arguments into those of the forms with types, and the payload into bytes, and
// calls Emit(). It never writes to the arguments of the call: the executor evaluates constants
// once, so that the second row would find what was written for the first.
#ifndef POSTBOX_EXTENSION_EMIT_EMIT_H_
#define POSTBOX_EXTENSION_EMIT_EMIT_H_

#include "extension/base/guard.h"

namespace postbox {

// The parameters of outbox_emit, in order.
enum EmitArgument {
  kAggregateType,
  kAggregateId,
  kEventType,
  kPayload,
  kVersion,
  kSchemaVersion,
  kAttributes,
  kEventId,
  kOccurredAt,
  kSourceEventId,
  kOutbox,
  kDeliverAt,
  kExpiresAt,
  kKeyMayPass,
};
inline constexpr size_t kEmitArguments = 14;

// Stores the event of these arguments: text, text, text, -, bigint, text, jsonb, uuid, timestamptz,
// text, regclass, timestamptz, timestamptz, boolean. `payload`: the bytes of the message. Returns
// the receipt, as the result of the function that was called.
Datum Emit(FunctionCallInfo fcinfo, const NullableDatum* arguments, Datum payload);

// Throws null_value_not_allowed if it is NULL.
void RequirePayload(const NullableDatum& payload);

// The bytes of a payload that is a text. Throws invalid_text_representation unless it is JSON.
Datum BytesOfJsonText(Datum text);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_EMIT_EMIT_H_

// postbox.outbox_emit: stores an event in the caller's transaction (store_event.h).
#include "extension/emit/emit.h"

#include "extension/base/message_bytes.h"
#include "extension/base/uuid.h"
#include "extension/emit/store_event.h"
#include "extension/lifecycle/wakeup.h"

extern "C" {
#include <tcop/utility.h>
#include <utils/typcache.h>
}

namespace postbox {
namespace {

Text RequiredText(const NullableDatum& argument, const char* name) {
  if (argument.isnull) {
    Throw(ERRCODE_NULL_VALUE_NOT_ALLOWED, std::string(name) + " may not be null");
  }
  Text text = ToText(argument.value);
  if (text.view.empty())
    Throw(ERRCODE_INVALID_PARAMETER_VALUE, std::string(name) + " may not be empty");
  return text;
}

EmittedEvent ReadEvent(const NullableDatum* arguments, Datum payload) {
  EmittedEvent event{};
  event.aggregate_type = RequiredText(arguments[kAggregateType], "aggregate_type");
  event.aggregate_id = RequiredText(arguments[kAggregateId], "aggregate_id");
  event.event_type = RequiredText(arguments[kEventType], "event_type");
  event.payload = payload;
  event.data = View(payload);
  if (!arguments[kVersion].isnull) {
    event.version = DatumGetInt64(arguments[kVersion].value);
    if (*event.version <= 0) {
      Throw(ERRCODE_INVALID_PARAMETER_VALUE,
            "version " + std::to_string(*event.version) + " is not positive",
            "Versions of an aggregate begin at 1.", "Omit version to let the outbox count.");
    }
  }
  event.schema_version = arguments[kSchemaVersion].isnull
                             ? ToText(Pg([] { return CStringGetTextDatum("v1"); }))
                             : ToText(arguments[kSchemaVersion].value);
  event.id_is_given = !arguments[kEventId].isnull;
  if (event.id_is_given) event.id = *DatumGetUUIDP(arguments[kEventId].value);
  if (!arguments[kSourceEventId].isnull) {
    event.source_event_id = RequiredText(arguments[kSourceEventId], "source_event_id");
    if (event.id.has_value()) {
      Throw(ERRCODE_INVALID_PARAMETER_VALUE, "event_id and source_event_id are mutually exclusive",
            "The id of an event that has a source is derived from the source.",
            "Omit one of them.");
    }
    event.id = DerivedEventId(ToUtf8(event.source_event_id->view), ToUtf8(event.event_type.view),
                              ToUtf8(event.aggregate_type.view), ToUtf8(event.aggregate_id.view));
  } else if (!event.id.has_value()) {
    event.id = UuidV7();
  }
  event.occurred_at = arguments[kOccurredAt].isnull
                          ? GetCurrentTransactionStartTimestamp()
                          : DatumGetTimestampTz(arguments[kOccurredAt].value);
  CheckOccurredAt(event.occurred_at);
  if (!arguments[kAttributes].isnull) {
    AddCallersAttributes(arguments[kAttributes].value, &event.extra);
  }
  AddContextAttributes(&event.extra);
  AddTimes(arguments[kDeliverAt], arguments[kExpiresAt], arguments[kKeyMayPass], &event);
  return event;
}

}  // namespace

Datum Emit(FunctionCallInfo fcinfo, const NullableDatum* arguments, Datum payload) {
  Pg([] { PreventCommandIfReadOnly("outbox_emit()"); });
  const EmittedEvent event = ReadEvent(arguments, payload);
  const NullableDatum& outbox = arguments[kOutbox];
  const std::shared_ptr<Outbox> opened =
      OpenOutbox(outbox.isnull ? InvalidOid : DatumGetObjectId(outbox.value));
  Receipt receipt = StoreEvent(opened.get(), event);
  return Pg([&] {
    TupleDesc descriptor = lookup_rowtype_tupdesc(get_func_rettype(fcinfo->flinfo->fn_oid), -1);
    Datum values[] = {UUIDPGetDatum(&receipt.id), event.aggregate_id.datum,
                      Int64GetDatum(receipt.version)};
    bool nulls[] = {false, false, false};
    const Datum row = HeapTupleGetDatum(heap_form_tuple(descriptor, values, nulls));
    ReleaseTupleDesc(descriptor);
    return row;
  });
}

void RequirePayload(const NullableDatum& payload) {
  if (!payload.isnull) return;
  Throw(ERRCODE_NULL_VALUE_NOT_ALLOWED, "payload may not be null", "",
        "For an event without content use the payload '{}'.");
}

Datum BytesOfJsonText(Datum text) {
  const Text plain = ToText(text);
  try {
    Pg([&] { CheckJson(plain.datum); });
  } catch (PostgresError& error) {
    if (error.sqlstate == ERRCODE_INVALID_TEXT_REPRESENTATION && error.hint.empty()) {
      error.hint = "Text must be JSON. Cast bytes: payload => (...)::bytea.";
    }
    throw;
  }
  return Pg([&] { return BytesOfText(plain.datum); });
}

}  // namespace postbox

POSTBOX_FUNCTION(outbox_emit_jsonb) {
  return postbox::Guarded([&] {
    const NullableDatum& payload = fcinfo->args[postbox::kPayload];
    postbox::RequirePayload(payload);
    const Datum bytes = postbox::Pg([&] { return postbox::BytesOfJsonb(payload.value); });
    return postbox::Emit(fcinfo, fcinfo->args, bytes);
  });
}

POSTBOX_FUNCTION(outbox_emit_bytea) {
  return postbox::Guarded([&] {
    postbox::RequirePayload(fcinfo->args[postbox::kPayload]);
    const Datum bytes =
        postbox::Pg([&] { return PointerGetDatum(PG_GETARG_BYTEA_PP(postbox::kPayload)); });
    return postbox::Emit(fcinfo, fcinfo->args, bytes);
  });
}

POSTBOX_FUNCTION(outbox_emit_text) {
  return postbox::Guarded([&] {
    const NullableDatum& payload = fcinfo->args[postbox::kPayload];
    postbox::RequirePayload(payload);
    return postbox::Emit(fcinfo, fcinfo->args, postbox::BytesOfJsonText(payload.value));
  });
}

// For SQL functions that put events back into the queue (redrive).
POSTBOX_FUNCTION(wake_publishers) {
  return postbox::Guarded([&] {
    postbox::RequestPublishersAtCommit();
    return Datum{0};
  });
}

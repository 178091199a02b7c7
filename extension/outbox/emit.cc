// postbox.outbox_emit: stores an event in the caller's transaction (store_event.h).
#include "extension/outbox/store_event.h"

#include "extension/base/uuid.h"
#include "extension/server/wakeup.h"

extern "C" {
#include <tcop/utility.h>
#include <utils/typcache.h>
}

namespace postbox {
namespace {

// The parameters of outbox_emit, in order.
enum Argument {
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
};

Text RequiredText(FunctionCallInfo fcinfo, Argument argument, const char* name) {
  if (fcinfo->args[argument].isnull) {
    Throw(ERRCODE_NULL_VALUE_NOT_ALLOWED, std::string(name) + " may not be null");
  }
  Text text = ToText(fcinfo->args[argument].value);
  if (text.view.empty())
    Throw(ERRCODE_INVALID_PARAMETER_VALUE, std::string(name) + " may not be empty");
  return text;
}

EmittedEvent ReadEvent(FunctionCallInfo fcinfo, Datum payload) {
  EmittedEvent event{};
  event.aggregate_type = RequiredText(fcinfo, kAggregateType, "aggregate_type");
  event.aggregate_id = RequiredText(fcinfo, kAggregateId, "aggregate_id");
  event.event_type = RequiredText(fcinfo, kEventType, "event_type");
  event.payload = payload;
  event.data = View(payload);
  const NullableDatum* arguments = fcinfo->args;
  if (!arguments[kVersion].isnull) {
    event.version = DatumGetInt64(arguments[kVersion].value);
    if (*event.version <= 0) {
      Throw(ERRCODE_INVALID_PARAMETER_VALUE,
            "version " + std::to_string(*event.version) + " is not positive",
            "Versions of an aggregate begin at 1.", "Leave version out to let the outbox count.");
    }
  }
  event.schema_version = arguments[kSchemaVersion].isnull
                             ? ToText(Pg([] { return CStringGetTextDatum("v1"); }))
                             : ToText(arguments[kSchemaVersion].value);
  event.id_is_given = !arguments[kEventId].isnull;
  if (event.id_is_given) event.id = *DatumGetUUIDP(arguments[kEventId].value);
  if (!arguments[kSourceEventId].isnull) {
    event.source_event_id = RequiredText(fcinfo, kSourceEventId, "source_event_id");
    if (event.id.has_value()) {
      Throw(ERRCODE_INVALID_PARAMETER_VALUE, "event_id and source_event_id exclude each other",
            "The id of an event that has a source is made from the source.",
            "Leave one of them out.");
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
  return event;
}

Datum EmitAndReturn(FunctionCallInfo fcinfo, Datum payload) {
  Pg([] { PreventCommandIfReadOnly("outbox_emit()"); });
  const EmittedEvent event = ReadEvent(fcinfo, payload);
  const NullableDatum& outbox = fcinfo->args[kOutbox];
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

void RequirePayload(FunctionCallInfo fcinfo) {
  if (!fcinfo->args[kPayload].isnull) return;
  Throw(ERRCODE_NULL_VALUE_NOT_ALLOWED, "payload may not be null", "",
        "An event without content has the payload '{}'.");
}

// JSON is sent as its text in UTF-8.
Datum JsonbToBytes(Datum payload) {
  return Pg([&] {
    Jsonb* jsonb = DatumGetJsonbP(payload);
    StringInfoData bytes;
    initStringInfo(&bytes);
    appendStringInfoSpaces(&bytes, VARHDRSZ);
    JsonbToCString(&bytes, &jsonb->root, static_cast<int>(VARSIZE(jsonb)));
    const char* text = bytes.data + VARHDRSZ;
    const char* utf8 = pg_server_to_any(text, bytes.len - VARHDRSZ, PG_UTF8);
    if (utf8 != text) return PointerGetDatum(cstring_to_text(utf8));
    SET_VARSIZE(bytes.data, bytes.len);
    return PointerGetDatum(bytes.data);
  });
}

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(outbox_emit_jsonb) {
  return postbox::Guarded([&] {
    postbox::RequirePayload(fcinfo);
    return postbox::EmitAndReturn(fcinfo,
                                  postbox::JsonbToBytes(PG_GETARG_DATUM(postbox::kPayload)));
  });
}

POSTBOX_FUNCTION(outbox_emit_bytea) {
  return postbox::Guarded([&] {
    postbox::RequirePayload(fcinfo);
    const Datum payload =
        postbox::Pg([&] { return PointerGetDatum(PG_GETARG_BYTEA_PP(postbox::kPayload)); });
    return postbox::EmitAndReturn(fcinfo, payload);
  });
}

POSTBOX_FUNCTION(outbox_emit_text) {
  return postbox::Guarded([&] {
    postbox::RequirePayload(fcinfo);
    const Datum jsonb = postbox::Pg([&] {
      return DirectFunctionCall1(
          jsonb_in, CStringGetDatum(TextDatumGetCString(PG_GETARG_DATUM(postbox::kPayload))));
    });
    return postbox::EmitAndReturn(fcinfo, postbox::JsonbToBytes(jsonb));
  });
}

// For SQL functions that put events back into the queue (redrive).
POSTBOX_FUNCTION(wake_publishers) {
  return postbox::Guarded([&] {
    postbox::RequestPublishersAtCommit();
    return Datum{0};
  });
}

#include "extension/apply/inbox_event.h"

extern "C" {
#include <catalog/pg_enum.h>
#include <utils/typcache.h>
}

namespace postbox {
namespace {

struct FieldInfo {
  const char* name;
  Oid type;
};
constexpr FieldInfo kFieldInfo[kEventFields] = {
    {"event_id", TEXTOID},     {"event_type", TEXTOID},        {"aggregate_type", TEXTOID},
    {"aggregate_id", TEXTOID}, {"version", INT8OID},           {"payload", BYTEAOID},
    {"attributes", JSONBOID},  {"occurred_at", TIMESTAMPTZOID}};

constexpr const char* kLabels[kOutcomes] = {"applied", "duplicate", "stale",
                                            "ignored", "rejected",  "parked"};

std::string_view TextOf(Datum value) {
  const text* packed = DatumGetTextPP(value);
  return {VARDATA_ANY(packed), static_cast<size_t>(VARSIZE_ANY_EXHDR(packed))};
}

}  // namespace

const char* EventFieldName(EventField field) { return kFieldInfo[static_cast<size_t>(field)].name; }
Oid EventFieldType(EventField field) { return kFieldInfo[static_cast<size_t>(field)].type; }

void FinishEvent(InboxEvent* event) {
  event->event_id = {};
  event->event_type = {};
  if (!event->IsNull(EventField::kEventId)) {
    event->event_id = TextOf(event->Value(EventField::kEventId));
    event->id = InboxKey(event->event_id);
  }
  if (!event->IsNull(EventField::kEventType)) {
    event->event_type = TextOf(event->Value(EventField::kEventType));
  }
}

InboxEvent EventOfComposite(Datum composite) {
  InboxEvent event{};
  HeapTupleHeader header = DatumGetHeapTupleHeader(composite);
  TupleDesc descriptor =
      lookup_rowtype_tupdesc(HeapTupleHeaderGetTypeId(header), HeapTupleHeaderGetTypMod(header));
  if (descriptor->natts != static_cast<int>(kEventFields)) {
    ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
                    errmsg("type postbox.event has %d attributes, not %zu", descriptor->natts,
                           kEventFields),
                    errhint("Run ALTER EXTENSION postbox UPDATE.")));
  }
  HeapTupleData tuple{};
  tuple.t_len = HeapTupleHeaderGetDatumLength(header);
  ItemPointerSetInvalid(&tuple.t_self);
  tuple.t_tableOid = InvalidOid;
  tuple.t_data = header;
  heap_deform_tuple(&tuple, descriptor, event.values, event.nulls);
  ReleaseTupleDesc(descriptor);
  event.composite = PointerGetDatum(header);
  event.has_composite = true;
  FinishEvent(&event);
  return event;
}

Datum CompositeOf(InboxEvent* event) {
  if (!event->has_composite) {
    TupleDesc descriptor = lookup_rowtype_tupdesc(PostboxType("event"), -1);
    event->composite = HeapTupleGetDatum(heap_form_tuple(descriptor, event->values, event->nulls));
    event->has_composite = true;
    ReleaseTupleDesc(descriptor);
  }
  return event->composite;
}

Oid PostboxType(const char* name) {
  const Oid schema = get_namespace_oid("postbox", false);
  const Oid type = GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid, CStringGetDatum(name),
                                   ObjectIdGetDatum(schema));
  if (!OidIsValid(type)) {
    ereport(ERROR,
            (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("type \"postbox.%s\" does not exist", name),
             errhint("Run CREATE EXTENSION postbox in this database.")));
  }
  return type;
}

void OutcomeOids(Oid (&oids)[kOutcomes]) {
  const Oid type = PostboxType("outcome");
  for (size_t i = 0; i < kOutcomes; ++i) {
    oids[i] = GetSysCacheOid2(ENUMTYPOIDNAME, Anum_pg_enum_oid, ObjectIdGetDatum(type),
                              CStringGetDatum(kLabels[i]));
  }
}

}  // namespace postbox

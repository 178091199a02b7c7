// See event_rows.h.
#include "worker/publisher/base/event_rows.h"

#include "extension/base/spi.h"
#include "extension/base/subtransaction.h"

namespace postbox::publisher {

namespace {

enum Column {
  kSeq,
  kId,
  kAggregateType,
  kAggregateId,
  kEventType,
  kVersion,
  kSchemaVersion,
  kPayload,
  kAttributes,
  kOccurredAt,
  kColumns,
};

constexpr std::array<Oid, kColumns> kTypes = {INT8OID, UUIDOID, TEXTOID,  TEXTOID,  TEXTOID,
                                              INT8OID, TEXTOID, BYTEAOID, JSONBOID, TIMESTAMPTZOID};

Oid TypeOf(TupleDesc descriptor, int column) { return TupleDescAttr(descriptor, column)->atttypid; }

[[noreturn]] void ThrowWrongType(const std::string& relation, int column, Oid expected) {
  const Form_pg_attribute attribute = TupleDescAttr(SPI_tuptable->tupdesc, column);
  const char* is = Pg([&] { return format_type_be(attribute->atttypid); });
  const char* wanted = Pg([&] { return format_type_be(expected); });
  Throw(ERRCODE_DATATYPE_MISMATCH,
        "column \"" + std::string(NameStr(attribute->attname)) + "\" of " + relation +
            " has type " + is + " instead of " + wanted,
        "Nothing of the outbox is published until its columns are as they were.",
        "Change the type of the column back.");
}

void CheckType(const std::string& relation, int column, Oid expected) {
  const Oid type = TypeOf(SPI_tuptable->tupdesc, column);
  if (type == expected || (type == VARCHAROID && expected == TEXTOID)) return;
  ThrowWrongType(relation, column, expected);
}

// The following run inside Pg(): plain data in palloc's memory only.

EventView NoEvent() {
  EventView event{};
  for (std::string_view* text : {&event.id, &event.aggregate_type, &event.aggregate_id,
                                 &event.event_type, &event.schema_version, &event.payload}) {
    *text = "";
  }
  return event;
}

const char* FindNull(TupleDesc descriptor, const bool* nulls) {
  for (int column = 0; column < kColumns; ++column) {
    if (!nulls[column]) continue;
    return psprintf("column \"%s\" is null", NameStr(TupleDescAttr(descriptor, column)->attname));
  }
  return nullptr;
}

void TakeRow(TupleDesc descriptor, HeapTuple tuple, Datum* values, bool* nulls, StoredRow* row) {
  heap_deform_tuple(tuple, descriptor, values, nulls);
  const bool id_is_uuid = TypeOf(descriptor, kId) == UUIDOID;
  new (row) StoredRow{nulls[kSeq] ? 0 : DatumGetInt64(values[kSeq]), FindNull(descriptor, nulls),
                      nulls[kAggregateId] ? "" : ViewBytes(values[kAggregateId]), NoEvent()};
  if (row->problem != nullptr) {
    if (!nulls[kId]) row->event.id = ViewId(values[kId], id_is_uuid);
    if (!nulls[kAggregateId]) row->event.aggregate_id = ViewText(values[kAggregateId]);
    return;
  }
  row->event = ViewEvent({.id = values[kId],
                          .id_is_uuid = id_is_uuid,
                          .aggregate_type = values[kAggregateType],
                          .aggregate_id = values[kAggregateId],
                          .event_type = values[kEventType],
                          .version = DatumGetInt64(values[kVersion]),
                          .schema_version = values[kSchemaVersion],
                          .payload = values[kPayload],
                          .attributes = values[kAttributes],
                          .occurred_at = DatumGetTimestampTz(values[kOccurredAt])});
  if (TIMESTAMP_NOT_FINITE(row->event.occurred_at_micros)) row->problem = "occurred_at is infinite";
  if (row->event.attribute_count < 0) row->problem = "attributes are not a JSON object";
}

// What can be read of a row of which something cannot.
void TakeParts(TupleDesc descriptor, HeapTuple tuple, const char* problem, StoredRow* row) {
  bool null = false;
  const auto value = [&](Column column) {
    return heap_getattr(tuple, column + 1, descriptor, &null);
  };
  new (row) StoredRow{0, problem, "", NoEvent()};
  const Datum seq = value(kSeq);
  if (!null) row->seq = DatumGetInt64(seq);
  const Datum id = value(kId);
  if (!null) row->event.id = ViewId(id, TypeOf(descriptor, kId) == UUIDOID);
}

// Runs `take` (PostgreSQL calls) so that its error leaves nothing behind. Returns the error's text,
// or nullptr.
template <class F>
const char* Try(F&& take) {
  try {
    InSubtransaction([&] { Pg(take); });
    return nullptr;
  } catch (const PostgresError& error) {
    return Pg([&] { return pstrdup(error.message.c_str()); });
  }
}

// Each row by itself: an error is that of its row.
void TakeOneByOne(const SPITupleTable* table, uint64 rows, Datum* values, bool* nulls,
                  StoredRow* views) {
  const TupleDesc descriptor = table->tupdesc;
  for (uint64 row = 0; row < rows; ++row) {
    const HeapTuple tuple = table->vals[row];
    StoredRow* view = &views[row];
    const char* problem = Try([&] { TakeRow(descriptor, tuple, values, nulls, view); });
    if (problem == nullptr) continue;
    Pg([&] { TakeParts(descriptor, tuple, problem, view); });
    Try([&] {
      bool null = false;
      const Datum key = heap_getattr(tuple, kAggregateId + 1, descriptor, &null);
      if (null) return;
      view->key = ViewBytes(key);
      view->event.aggregate_id = ViewText(key);
    });
  }
}

}  // namespace

void CheckColumns(const std::string& relation, std::initializer_list<Oid> types) {
  int column = 0;
  for (const Oid type : types) CheckType(relation, column++, type);
}

void CheckEventColumns(const std::string& relation, std::initializer_list<Oid> more) {
  for (int column = 0; column < kColumns; ++column) {
    const bool id_text = column == kId && TypeOf(SPI_tuptable->tupdesc, column) == TEXTOID;
    if (!id_text) CheckType(relation, column, kTypes[column]);
  }
  int column = kColumns;
  for (const Oid type : more) CheckType(relation, column++, type);
}

std::span<const StoredRow> ViewRows(uint64 rows) {
  SPITupleTable* const table = SPI_tuptable;
  StoredRow* views = nullptr;
  Datum* values = nullptr;
  bool* nulls = nullptr;
  Pg([&] {
    views = static_cast<StoredRow*>(palloc(sizeof(StoredRow) * (rows + 1)));
    values = static_cast<Datum*>(palloc(sizeof(Datum) * table->tupdesc->natts));
    nulls = static_cast<bool*>(palloc(sizeof(bool) * table->tupdesc->natts));
  });
  if (rows == 0) return {views, rows};
  try {
    InSubtransaction([&] {
      Pg([&] {
        for (uint64 row = 0; row < rows; ++row) {
          TakeRow(table->tupdesc, table->vals[row], values, nulls, &views[row]);
        }
      });
    });
  } catch (const PostgresError&) {
    TakeOneByOne(table, rows, values, nulls, views);
  }
  SPI_tuptable = table;
  return {views, rows};
}

EventPointer MakeEvent(const StoredRow& row, std::string_view topic, const Ordering& ordering) {
  EventPointer event = NewEvent();
  event->key = row.key;
  event->seq = row.seq;
  if (row.problem == nullptr) {
    FillMessage(row.event, topic, ordering, event.get());
    return event;
  }
  event->topic = topic;
  ordering.SetKey(row.event.aggregate_id, &event->ordering_key);
  event->status = pubsub::PublishStatus::kRejected;
  event->error = std::string("the row cannot be an event: ") + row.problem;
  return event;
}

}  // namespace postbox::publisher

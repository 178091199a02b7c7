#include "worker/publisher/log/log_rows.h"

namespace postbox::publisher {

std::span<const LogRow> ViewLogRows(uint64 rows) {
  LogRow* views = nullptr;
  Pg([&] {
    const TupleDesc descriptor = SPI_tuptable->tupdesc;
    views = static_cast<LogRow*>(palloc(sizeof(LogRow) * (rows + 1)));
    auto* values = static_cast<Datum*>(palloc(sizeof(Datum) * descriptor->natts));
    auto* nulls = static_cast<bool*>(palloc(sizeof(bool) * descriptor->natts));
    for (uint64 row = 0; row < rows; ++row) {
      heap_deform_tuple(SPI_tuptable->vals[row], descriptor, values, nulls);
      new (&views[row]) LogRow{DatumGetInt64(values[0]),
                               ViewEvent({.id = values[1],
                                          .id_is_uuid = true,
                                          .aggregate_type = values[2],
                                          .aggregate_id = values[3],
                                          .event_type = values[4],
                                          .version = DatumGetInt64(values[5]),
                                          .schema_version = values[6],
                                          .payload = values[7],
                                          .attributes = values[8],
                                          .occurred_at = DatumGetTimestampTz(values[9])})};
    }
  });
  return {views, rows};
}

EventPointer MakeEvent(const LogRow& row, std::string_view topic, const Ordering& ordering) {
  EventPointer event = NewEvent();
  FillMessage(row.event, topic, ordering, event.get());
  event->key = row.event.aggregate_id;
  event->seq = row.seq;
  return event;
}

}  // namespace postbox::publisher

// The rows that the SELECTs of log_outbox_sql.cc return, and the events made of them.
#ifndef POSTBOX_WORKER_PUBLISHER_LOG_LOG_ROWS_H_
#define POSTBOX_WORKER_PUBLISHER_LOG_LOG_ROWS_H_

#include "extension/base/guard.h"
#include "worker/publisher/base/claimed_event.h"
#include "worker/publisher/base/event_message.h"

namespace postbox::publisher {

// Plain data in the memory of the transaction.
struct LogRow {
  int64 seq;
  EventView event;
};

// All rows of SPI_tuptable, read in one go: a row costs no exception frame of its own.
std::span<const LogRow> ViewLogRows(uint64 rows);

// `topic` must outlive the event.
EventPointer MakeEvent(const LogRow& row, std::string_view topic, const Ordering& ordering);

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_LOG_LOG_ROWS_H_

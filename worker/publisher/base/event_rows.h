// The rows of an outbox as a worker gets them, of both kinds, and the events made of them.
//
// A row is data and not a promise: the owner may alter the table, and whoever may INSERT may have
// written anything. What is wrong with the columns concerns the whole outbox: CheckEventColumns()
// throws, and the publication is suspended with the reason. What is wrong with one row concerns
// this row: it becomes an event that must not be sent (kRejected, with the reason). That goes the
// way of an event that Pub/Sub refuses, so it is parked in its turn, and the order of its key
// stays.
#ifndef POSTBOX_WORKER_PUBLISHER_BASE_EVENT_ROWS_H_
#define POSTBOX_WORKER_PUBLISHER_BASE_EVENT_ROWS_H_

#include "extension/base/guard.h"
#include "worker/publisher/base/claimed_event.h"
#include "worker/publisher/base/event_message.h"

namespace postbox::publisher {

// Plain data in the memory of the transaction.
struct StoredRow {
  int64 seq;             // 0 if it is NULL
  const char* problem;   // why the row cannot be an event, or nullptr
  std::string_view key;  // the aggregate id as it is stored; empty if it is not readable
  // Where there is a problem: the id and the aggregate id, and empty texts where these are not
  // readable either.
  EventView event;
};

// Checks the types of the columns of SPI_tuptable before one is read: a value of another type must
// not be taken for a text. `relation` is the outbox or its table of parked events. varchar passes
// for text. Throws datatype_mismatch. Once a statement.
void CheckColumns(const std::string& relation, std::initializer_list<Oid> types);

// The same for the columns of an event: seq, id (a uuid, or its text), aggregate_type,
// aggregate_id, event_type, version, schema_version, payload, attributes, occurred_at, then `more`.
void CheckEventColumns(const std::string& relation, std::initializer_list<Oid> more = {});

// All rows of SPI_tuptable, whose columns were checked. They are read in one go: a row costs no
// exception frame of its own, unless one of them raises an error.
std::span<const StoredRow> ViewRows(uint64 rows);

// `topic` must outlive the event.
EventPointer MakeEvent(const StoredRow& row, std::string_view topic, const Ordering& ordering);

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_BASE_EVENT_ROWS_H_

// The rows of an outbox as a worker gets them, of both kinds, and the events made of them.
//
// A row is data and not a promise: the owner may alter the table, and a role that may INSERT may
// have written anything. What is wrong with the columns concerns the whole outbox:
// CheckEventColumns() throws, and the publication is suspended with the reason. What is wrong with
// one row concerns this row: it becomes an event that must not be sent (kRejected, with the
// reason). That goes the way of an event that Pub/Sub refuses, so it is parked in its turn, and the
// order of its key stays.
//
// A row is small as SPI has it: a large value is compressed or stands in a TOAST table. Reading it
// makes it large. So rows are read in portions, as far as a budget goes, and counted before they
// are read. What is larger than any message is not read at all; it cannot be an event.
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_EVENT_ROWS_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_EVENT_ROWS_H_

#include "extension/base/guard.h"
#include "proto/rules/limits.h"
#include "worker/publisher/source/byte_budget.h"
#include "worker/publisher/source/claimed_event.h"
#include "worker/publisher/source/event_message.h"

namespace postbox::publisher {

// A payload with more bytes fits into no message.
inline constexpr std::size_t kMaxPayload = pubsub::kMaxRequestBytes;

// Plain data in the memory of the transaction.
struct StoredRow {
  int64 seq;            // 0 if it is NULL
  const char* problem;  // why the row cannot be an event, or nullptr
  // As the index of keys has it: the aggregate id, or in a log what LogKey() makes of the id of an
  // event that its key may pass; empty if it is not readable.
  std::string_view key;
  // Where there is a problem: the id and the aggregate id, and empty texts where these are not
  // readable either.
  EventView event;
};

// Checks the types of the columns of SPI_tuptable before one is read: a value of another type must
// not be taken for a text. `relation` is the outbox or its table of parked events. varchar passes
// for text. Throws datatype_mismatch. Once a statement.
void CheckColumns(const std::string& relation, std::initializer_list<Oid> types);

// The same for one column, from 1.
void CheckColumn(const std::string& relation, int column, Oid type);

// The same for the columns of an event: seq, id (a uuid, or its text), aggregate_type,
// aggregate_id, event_type, version, schema_version, payload, attributes, occurred_at, then `more`.
void CheckEventColumns(const std::string& relation, std::initializer_list<Oid> more = {});

// Whether these are the columns of an event, and no more. Raises nothing.
bool HasEventColumns(TupleDesc descriptor);

// Reads a row with the columns of an event, all of which the slot has taken out of it. False: a
// value is NULL, compressed or stored elsewhere, or the row cannot be an event. Inside Pg(); where
// the database's encoding is UTF-8 it raises nothing but a lack of memory.
bool ReadPlainRow(const TupleTableSlot* slot, StoredRow* row);

// How many bytes a value of SPI_tuptable has when it is not compressed. Reads nothing of it. 0 if
// it is NULL or of a type of fixed length.
std::size_t RawSizeColumn(uint64 row, int column);

// Whether a row may say that it has no place in the order of its key. In a table none may.
enum class KeysMayPass : bool { kNo, kYes };

// The rows of SPI_tuptable, whose columns were checked, portion by portion. The rows of a portion
// are read in one go: a row costs no separate exception frame, unless one of them raises an
// error.
class RowReader {
 public:
  RowReader(uint64 rows, KeysMayPass keys_may_pass);
  ~RowReader();
  RowReader(const RowReader&) = delete;
  RowReader& operator=(const RowReader&) = delete;

  bool AtEnd() const { return next_ == rows_; }
  // The next rows. What the last portion referred to is gone. Empty: the budget has no room for the
  // next row, and was told so.
  std::span<const StoredRow> Next(ByteBudget* budget);
  // The next row, which is not read: why, says `problem`.
  std::span<const StoredRow> NextUnread(const char* problem);
  // Of the next row; 0 if it is NULL.
  int64 NextSeq() const;
  // Which row of SPI_tuptable the first one of the last portion is.
  uint64 portion() const { return from_; }

 private:
  std::span<const StoredRow> Portion() const { return {views_, next_ - from_}; }
  void Begin();
  void ReadOneByOne(uint64 rows);

  SPITupleTable* const table_;
  const uint64 rows_;
  const KeysMayPass keys_may_pass_;
  uint64 from_ = 0;
  uint64 next_ = 0;
  MemoryContext memory_ = nullptr;  // of a portion
  StoredRow* views_ = nullptr;
  Datum* values_ = nullptr;
  bool* nulls_ = nullptr;
};

// Whether an error can be that of one row: a value that cannot be converted, or damaged data. All
// others concern the table.
bool IsOfValue(const PostgresError& error);

// The event cannot be sent, and is not encoded.
void Reject(std::string why, ClaimedEvent* event);

// `topic` must outlive the event. One of a row with a problem is rejected.
EventPointer MakeEvent(const StoredRow& row, std::string_view topic, const Ordering& ordering);

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_EVENT_ROWS_H_

// See event_rows.h.
#include "worker/publisher/source/event_rows.h"

#include "extension/base/spi.h"
#include "extension/base/subtransaction.h"
#include "extension/shared/outbox_columns.h"
#include "worker/publisher/source/event_spans.h"

extern "C" {
#include <access/detoast.h>
}

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

bool HasType(TupleDesc descriptor, int column, Oid expected) {
  const Oid type = TypeOf(descriptor, column);
  return type == expected || (type == VARCHAROID && expected == TEXTOID);
}

// The type that a column of an event must have; an id may be a text.
Oid EventType(TupleDesc descriptor, int column) {
  const bool id_text = column == kId && TypeOf(descriptor, column) == TEXTOID;
  return id_text ? TEXTOID : kTypes[column];
}

void CheckType(const std::string& relation, int column, Oid expected) {
  if (!HasType(SPI_tuptable->tupdesc, column, expected)) ThrowWrongType(relation, column, expected);
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

// What is needed of a row that is not in the row itself, or compressed in it.
std::size_t SizeOutside(Datum value) {
  const auto* data = reinterpret_cast<const varlena*>(DatumGetPointer(value));
  return VARATT_IS_EXTERNAL(data) || VARATT_IS_COMPRESSED(data) ? toast_raw_datum_size(value) : 0;
}

// The bytes of a row when all of it is read.
struct RowSize {
  std::size_t payload = 0;
  std::size_t rest = 0;

  std::size_t all() const { return payload + rest; }
  // No message can be made of it.
  bool too_large() const { return payload > kMaxPayload || rest > kMaxPayload; }
};

RowSize SizeOfRow(HeapTuple tuple, const Datum* values, const bool* nulls) {
  RowSize size;
  if (!nulls[kPayload]) size.payload = SizeOutside(values[kPayload]);
  size.rest = tuple->t_len;
  for (const Column column :
       {kAggregateType, kAggregateId, kEventType, kSchemaVersion, kAttributes}) {
    if (!nulls[column]) size.rest += SizeOutside(values[column]);
  }
  return size;
}

const char* TooLarge(const RowSize& size) {
  const bool payload = size.payload > kMaxPayload;
  return psprintf("%s %zu bytes, and a message may have at most %zu",
                  payload ? "its payload has" : "it has, without its payload,",
                  payload ? size.payload - VARHDRSZ : size.rest, kMaxPayload);
}

EventRow RowOf(TupleDesc descriptor, const Datum* values) {
  return {.id = values[kId],
          .id_is_uuid = TypeOf(descriptor, kId) == UUIDOID,
          .aggregate_type = values[kAggregateType],
          .aggregate_id = values[kAggregateId],
          .event_type = values[kEventType],
          .version = DatumGetInt64(values[kVersion]),
          .schema_version = values[kSchemaVersion],
          .payload = values[kPayload],
          .attributes = values[kAttributes],
          .occurred_at = DatumGetTimestampTz(values[kOccurredAt])};
}

// As LogKey() has it.
std::string_view KeyOfEvent(TupleDesc descriptor, Datum id) {
  const bool is_uuid = TypeOf(descriptor, kId) == UUIDOID;
  const std::string_view name = is_uuid ? ViewId(id, true) : ViewBytes(id);
  auto* key = static_cast<char*>(palloc(kKeyOfEvent.size() + name.size()));
  std::memcpy(key, kKeyOfEvent.data(), kKeyOfEvent.size());
  std::memcpy(key + kKeyOfEvent.size(), name.data(), name.size());
  return {key, kKeyOfEvent.size() + name.size()};
}

// Not of a value that is NULL.
std::string_view KeyOf(TupleDesc descriptor, const Datum* values, bool key_may_pass) {
  return key_may_pass ? KeyOfEvent(descriptor, values[kId]) : ViewBytes(values[kAggregateId]);
}

// The same of a row of which something may not be readable.
std::string_view KeyOf(TupleDesc descriptor, const RowSize& size, const Datum* values,
                       const bool* nulls, KeysMayPass keys_may_pass) {
  const bool may_pass = keys_may_pass == KeysMayPass::kYes && !nulls[kId] && !nulls[kAttributes] &&
                        !size.too_large() && KeyMayPass(values[kAttributes]);
  return nulls[kAggregateId] && !may_pass ? "" : KeyOf(descriptor, values, may_pass);
}

const char* ProblemOf(const EventView& event) {
  if (TIMESTAMP_NOT_FINITE(event.occurred_at_micros)) return "occurred_at is infinite";
  if (event.attribute_count < 0) return "attributes are not a JSON object";
  if (event.has_bad_time) {
    return "postbox_deliver_at or postbox_expires_at of its attributes is no time";
  }
  return nullptr;
}

// Whose values are in `values` and `nulls`.
void TakeRow(TupleDesc descriptor, const RowSize& size, Datum* values, bool* nulls,
             KeysMayPass keys_may_pass, StoredRow* row) {
  new (row) StoredRow{nulls[kSeq] ? 0 : DatumGetInt64(values[kSeq]), FindNull(descriptor, nulls),
                      KeyOf(descriptor, size, values, nulls, keys_may_pass), NoEvent()};
  if (row->problem == nullptr && size.too_large()) row->problem = TooLarge(size);
  if (row->problem != nullptr) {
    if (!nulls[kId]) {
      row->event.id = ViewId(values[kId], TypeOf(descriptor, kId) == UUIDOID);
    }
    if (!nulls[kAggregateId]) row->event.aggregate_id = ViewText(values[kAggregateId]);
    return;
  }
  row->event = ViewEvent(RowOf(descriptor, values));
  row->event.key_may_pass &= keys_may_pass == KeysMayPass::kYes;
  row->problem = ProblemOf(row->event);
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

void TakeKey(TupleDesc descriptor, HeapTuple tuple, KeysMayPass keys_may_pass, StoredRow* row) {
  bool null = false;
  const Datum key = heap_getattr(tuple, kAggregateId + 1, descriptor, &null);
  if (null) return;
  row->key = ViewBytes(key);
  row->event.aggregate_id = ViewText(key);
  if (keys_may_pass == KeysMayPass::kNo) return;
  const Datum attributes = heap_getattr(tuple, kAttributes + 1, descriptor, &null);
  if (null || row->event.id.empty() || !KeyMayPass(attributes)) return;
  const Datum id = heap_getattr(tuple, kId + 1, descriptor, &null);
  row->key = KeyOfEvent(descriptor, id);
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

// So much is read at a time, or one row.
constexpr std::size_t kPortion = std::size_t{1} << 20;

}  // namespace

void CheckColumns(const std::string& relation, std::initializer_list<Oid> types) {
  int column = 0;
  for (const Oid type : types) CheckType(relation, column++, type);
}

void CheckColumn(const std::string& relation, int column, Oid type) {
  CheckType(relation, column - 1, type);
}

void CheckEventColumns(const std::string& relation, std::initializer_list<Oid> more) {
  for (int column = 0; column < kColumns; ++column) {
    CheckType(relation, column, EventType(SPI_tuptable->tupdesc, column));
  }
  int column = kColumns;
  for (const Oid type : more) CheckType(relation, column++, type);
}

bool HasEventColumns(TupleDesc descriptor) {
  for (int column = 0; column < kColumns; ++column) {
    if (!HasType(descriptor, column, EventType(descriptor, column))) return false;
  }
  return descriptor->natts == kColumns;
}

bool ReadPlainRow(const TupleTableSlot* slot, StoredRow* row) {
  const TupleDesc descriptor = slot->tts_tupleDescriptor;
  for (int column = 0; column < kColumns; ++column) {
    if (slot->tts_isnull[column]) return false;
    if (TupleDescAttr(descriptor, column)->attlen != -1) continue;
    const auto* value = reinterpret_cast<const varlena*>(DatumGetPointer(slot->tts_values[column]));
    if (VARATT_IS_EXTERNAL(value) || VARATT_IS_COMPRESSED(value)) return false;
  }
  const EventView event = ViewEvent(RowOf(descriptor, slot->tts_values));
  new (row) StoredRow{DatumGetInt64(slot->tts_values[kSeq]), nullptr,
                      KeyOf(descriptor, slot->tts_values, event.key_may_pass), event};
  return ProblemOf(event) == nullptr;
}

std::size_t RawSizeColumn(uint64 row, int column) {
  bool null = false;
  const Datum value = DatumColumn(row, column, &null);
  if (null || TupleDescAttr(SPI_tuptable->tupdesc, column - 1)->attlen != -1) return 0;
  const auto* data = reinterpret_cast<const varlena*>(DatumGetPointer(value));
  if (!VARATT_IS_EXTERNAL(data) && !VARATT_IS_COMPRESSED(data)) return VARSIZE_ANY_EXHDR(data);
  return Pg([&] { return toast_raw_datum_size(value); }) - VARHDRSZ;
}

RowReader::RowReader(uint64 rows, KeysMayPass keys_may_pass)
    : table_(SPI_tuptable), rows_(rows), keys_may_pass_(keys_may_pass) {
  if (rows == 0) return;
  Pg([&] {
    memory_ = AllocSetContextCreate(CurrentMemoryContext, "postbox rows", ALLOCSET_DEFAULT_SIZES);
    views_ = static_cast<StoredRow*>(palloc(sizeof(StoredRow) * rows_));
    values_ = static_cast<Datum*>(palloc(sizeof(Datum) * table_->tupdesc->natts));
    nulls_ = static_cast<bool*>(palloc(sizeof(bool) * table_->tupdesc->natts));
  });
}

RowReader::~RowReader() {
  if (memory_ != nullptr) MemoryContextDelete(memory_);
}

void RowReader::Begin() {
  from_ = next_;
  MemoryContextReset(memory_);
}

std::span<const StoredRow> RowReader::Next(ByteBudget* budget) {
  if (AtEnd()) return {};
  Begin();
  const std::size_t most = std::min(kPortion, budget->left());
  const std::size_t first = budget->next();
  std::size_t bytes = 0;
  RowSize size;
  try {
    InSubtransaction([&] {
      Pg([&] {
        const MemoryContext before = MemoryContextSwitchTo(memory_);
        for (; next_ < rows_; ++next_) {
          heap_deform_tuple(table_->vals[next_], table_->tupdesc, values_, nulls_);
          size = SizeOfRow(table_->vals[next_], values_, nulls_);
          const std::size_t all = size.too_large() ? 0 : size.all();
          if (next_ == from_ ? all > first : bytes + all > most) break;
          bytes += all;
          TakeRow(table_->tupdesc, size, values_, nulls_, keys_may_pass_, &views_[next_ - from_]);
        }
        MemoryContextSwitchTo(before);
      });
    });
  } catch (const PostgresError&) {
    ReadOneByOne(next_ + 1 - from_);
  }
  SPI_tuptable = table_;
  if (next_ == from_) budget->Refuse(size.all());
  return Portion();
}

// So many rows, each by itself: an error is that of its row.
void RowReader::ReadOneByOne(uint64 rows) {
  const MemoryContext before = MemoryContextSwitchTo(memory_);
  const TupleDesc descriptor = table_->tupdesc;
  for (next_ = from_; next_ < from_ + rows; ++next_) {
    const HeapTuple tuple = table_->vals[next_];
    StoredRow* view = &views_[next_ - from_];
    const char* problem = Try([&] {
      heap_deform_tuple(tuple, descriptor, values_, nulls_);
      TakeRow(descriptor, SizeOfRow(tuple, values_, nulls_), values_, nulls_, keys_may_pass_, view);
    });
    if (problem == nullptr) continue;
    Pg([&] { TakeParts(descriptor, tuple, problem, view); });
    Try([&] { TakeKey(descriptor, tuple, keys_may_pass_, view); });
  }
  MemoryContextSwitchTo(before);
}

std::span<const StoredRow> RowReader::NextUnread(const char* problem) {
  Begin();
  const MemoryContext before = MemoryContextSwitchTo(memory_);
  Pg([&] { TakeParts(table_->tupdesc, table_->vals[next_], problem, views_); });
  Try([&] { TakeKey(table_->tupdesc, table_->vals[next_], keys_may_pass_, views_); });
  MemoryContextSwitchTo(before);
  SPI_tuptable = table_;
  ++next_;
  return Portion();
}

int64 RowReader::NextSeq() const { return Int64Column(next_, kSeq + 1); }

bool IsOfValue(const PostgresError& error) {
  const int sqlclass = ERRCODE_TO_CATEGORY(error.sqlstate);
  return sqlclass == ERRCODE_DATA_EXCEPTION || error.sqlstate == ERRCODE_DATA_CORRUPTED;
}

void Reject(std::string why, ClaimedEvent* event) {
  event->encoded.clear();
  event->status = pubsub::PublishStatus::kRejected;
  event->error = std::move(why);
}

namespace {

// What an event does not hold up has no ordering key: what follows of its key goes on.
void SetUnsent(const EventView& row, Timeliness timeliness, const Ordering& ordering,
               ClaimedEvent* event) {
  const bool late = timeliness == Timeliness::kTooLate;
  if (!late && !row.key_may_pass) ordering.SetKey(row.aggregate_id, &event->ordering_key);
  const std::span attributes(row.attributes,
                             static_cast<std::size_t>(std::max(row.attribute_count, 0)));
  event->extras = std::make_unique<EventExtras>();
  event->extras->unsent.emplace(
      UnsentEvent{timeliness, row.times, std::string(row.id), std::string(row.aggregate_type),
                  std::string(row.aggregate_id), std::string(row.event_type), row.version,
                  std::string(pubsub::TraceIdAmong(attributes))});
  Reject("", event);
}

// Whether it must not be sent now.
bool IsUntimely(const EventView& row, const Ordering& ordering, ClaimedEvent* event) {
  const std::int64_t now = UnixMicros(GetCurrentTimestamp());
  const Timeliness timeliness = TimelinessOf(row.times, now);
  if (timeliness == Timeliness::kInTime) {
    event->send_by = SendUntil(row.times, now, std::chrono::steady_clock::now());
    return false;
  }
  SetUnsent(row, timeliness, ordering, event);
  return true;
}

}  // namespace

EventPointer MakeEvent(const StoredRow& row, std::string_view topic, const Ordering& ordering) {
  EventPointer event = NewEvent();
  event->key = row.key;
  event->seq = row.seq;
  if (row.problem == nullptr) {
    if (row.event.times.any() && IsUntimely(row.event, ordering, event.get())) {
      event->topic = topic;
      if (event->unsent()->timeliness == Timeliness::kTooLate) {
        TraceUnsent(row.event, topic, event.get());
      }
    } else {
      FillMessage(row.event, topic, ordering, event.get());
      event->occurred_at = row.event.occurred_at_micros;
    }
    return event;
  }
  event->topic = topic;
  ordering.SetKey(row.event.aggregate_id, &event->ordering_key);
  Reject(std::string("the row cannot be an event: ") + row.problem, event.get());
  TraceUnsent(row.event, topic, event.get());
  return event;
}

}  // namespace postbox::publisher

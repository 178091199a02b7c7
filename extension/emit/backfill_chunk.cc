// postbox.emit_backfill_chunk: emits the events of the next rows of a backfill, and stores the
// position behind them, in the transaction of its caller.
//
// Rule: an event of a backfill never has a greater version than a later change of its row, and
// never an older content than an event with a smaller version.
//
//  1. The rows of the chunk are locked, so that each is as it was committed last (chunk_rows.h). A
//     session that changes or deletes one of them waits, and emits after the commit of the chunk,
//     with a greater version. A row that another session has deleted is not in the chunk.
//  2. The versions of the rows are counted, in the order of their aggregate ids. That locks the
//     aggregates: a session that emits without touching the row waits, too.
//  3. The payloads are made: of the locked rows, or by a function, which sees what is committed at
//     this moment (payload_function.h). Then the events are stored.
//
// Sessions that change rows and emit take the locks in the same order, row first. Those that do not
// may wait for the chunk while it waits for them. So the chunk waits for locks for less than
// deadlock_timeout, and gives way: the caller rolls back and tries again with fewer rows.
//
// On disk, a chunk is its events, the counted versions, and the position: one transaction. In
// memory are its rows, without values that are stored elsewhere, and the payloads of kBatchBytes.
//
// A chunk ends early, between two batches, when its time is over: rows may be large.
#include "extension/base/arguments.h"
#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "extension/emit/chunk_rows.h"
#include "extension/emit/payload_function.h"
#include "extension/emit/row_format.h"
#include "extension/emit/store_event.h"
#include "extension/registry/outbox_lag.h"
#include "extension/trust/act_as.h"
#include "extension/trust/pinned_settings.h"
#include "extension/trust/registrar.h"
#include "proto/rules/attributes.h"

extern "C" {
#include <storage/proc.h>
#include <tcop/utility.h>
}

namespace postbox {
namespace {

constexpr uint64 kBackfillBatchRows = 500;
constexpr size_t kBackfillBatchBytes = 1024 * 1024;
constexpr int kLongestLockWaitMs = 5000;

constexpr int kChunkMostRows = 100'000;

// Memory that is emptied time and again.
class BatchMemory {
 public:
  BatchMemory()
      : context_(Pg([] {
          return AllocSetContextCreate(CurrentMemoryContext, "postbox backfill",
                                       ALLOCSET_DEFAULT_SIZES);
        })) {}
  // It goes with the memory that it was made in.
  ~BatchMemory() = default;
  BatchMemory(const BatchMemory&) = delete;
  BatchMemory& operator=(const BatchMemory&) = delete;

  // Later allocations are made here, until code of Postgres switches.
  void Use() const { MemoryContextSwitchTo(context_); }
  void Reset() const {
    Pg([&] { MemoryContextReset(context_); });
  }

 private:
  MemoryContext context_;
};

class ChunkEmitter {
 public:
  ChunkEmitter(const Backfill& backfill, Relation table, ChunkRows* rows)
      : backfill_(backfill), rows_(rows), format_(table, backfill.key, PayloadColumns(backfill)) {
    if (backfill.payload.has_value()) function_.emplace(*backfill.payload, table);
    event_.aggregate_type = ToText(TextValue(backfill.aggregate_type));
    event_.schema_version = ToText(TextValue("v1"));
    event_type_ = ToText(TextValue(backfill.event_type));
    event_.occurred_at = GetCurrentTransactionStartTimestamp();
    event_.extra.emplace_back(pubsub::kSnapshot, ToUtf8(View(TextValue(backfill.name))));
    AddContextAttributes(&event_.extra);
    for (auto& [name, value] : event_.extra) value = View(TextValue(value));
  }

  // Emits the events of rows from `first` on, at least one. Returns the place behind the last one.
  uint64 EmitBatch(uint64 first) {
    keys_.Use();
    changes_.clear();
    size_t bytes = 0;
    uint64 behind = first;
    while (behind < rows_->size() && changes_.size() < kBackfillBatchRows &&
           bytes < kBackfillBatchBytes) {
      changes_.push_back(ChangeOf(rows_->Row(behind++)));
      bytes += rows_->Bytes();
    }
    const std::shared_ptr<Outbox> outbox = OpenOutbox(backfill_.outbox);
    keys_.Use();
    const std::vector<int64> versions = CountVersions(outbox.get(), event_, changes_);
    are_first_ = std::all_of(versions.begin(), versions.end(), [](int64 v) { return v == 1; });
    for (size_t stored = 0; stored < changes_.size();) {
      stored = StorePart(*outbox, first, stored, versions);
    }
    keys_.Reset();
    return behind;
  }

 private:
  // A function makes the payload of the whole row: then the format makes keys only.
  static const std::vector<std::string>& PayloadColumns(const Backfill& backfill) {
    return backfill.payload.has_value() ? backfill.key : backfill.columns;
  }

  Change ChangeOf(TupleTableSlot* row) {
    const std::optional<Datum> key = format_.Key(row);
    if (!key.has_value()) {
      Throw(ERRCODE_NULL_VALUE_NOT_ALLOWED,
            "a row of " + RelationName(backfill_.relation) + " has no key for its event",
            "A column of the key (" + format_.key_names() + ") is null.",
            "Give the row a key, or create the backfill with other columns as key.");
    }
    if (View(*key).empty()) {
      Throw(ERRCODE_INVALID_PARAMETER_VALUE,
            "a row of " + RelationName(backfill_.relation) + " has an empty key for its event",
            "The columns of the key are " + format_.key_names() + ".",
            "Give the row a key, or create the backfill with other columns as key.");
    }
    CheckKey(View(*key));
    return {.aggregate_id = {*key, View(*key)},
            .event_type = event_type_,
            .payload = 0,
            .is_likely_first = are_first_};
  }

  // Stores events of the batch that begins with row `first`, from the change `from` on, up to the
  // limit of memory. Returns the place behind the last one.
  size_t StorePart(const Outbox& counted, uint64 first, size_t from,
                   const std::vector<int64>& versions) {
    payloads_.Use();
    size_t behind = from;
    for (size_t bytes = 0; behind < changes_.size() && bytes < kBackfillBatchBytes; ++behind) {
      TupleTableSlot* row = rows_->Row(first + behind);
      payloads_.Use();
      changes_[behind].payload =
          function_.has_value() ? function_->Call(row) : format_.Payload(row);
      bytes += View(changes_[behind].payload).size();
    }
    const std::shared_ptr<Outbox> outbox = ReopenOutbox(counted);
    payloads_.Use();
    const std::span<const Change> part(changes_.begin() + from, changes_.begin() + behind);
    if (outbox->facts().columns.VersionIsSeq()) {
      for (const Change& change : part) {
        SetChange(&event_, change);
        StoreEvent(outbox.get(), event_);
        payloads_.Use();
      }
    } else {
      StoreCountedEvents(outbox.get(), event_, part,
                         std::span(versions).subspan(from, behind - from));
    }
    payloads_.Reset();
    return behind;
  }

  const Backfill& backfill_;
  ChunkRows* rows_;
  RowFormat format_;
  std::optional<PayloadFunction> function_;
  EmittedEvent event_{};  // what all events have in common
  Text event_type_{};
  std::vector<Change> changes_;
  bool are_first_ = false;  // the events of the last batch were the first of their aggregates
  BatchMemory keys_;
  BatchMemory payloads_;
};

struct Emitted {
  uint64 rows = 0;
  KeyTexts position;  // behind the last one; empty if no row is left
};

// Waiting ends before another session is cancelled as the one that closes a circle.
void LimitLockWaits() {
  int most = std::min(kLongestLockWaitMs, std::max(DeadlockTimeout / 2, 1));
  if (LockTimeout > 0) most = std::min(most, LockTimeout);
  const std::string value = std::to_string(most);
  Pg([&] {
    set_config_option("lock_timeout", value.c_str(), PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE,
                      true, 0, false);
  });
}

Emitted EmitChunk(const Backfill& backfill, int most, int64 microseconds) {
  const TimestampTz deadline = GetCurrentTimestamp() + microseconds;
  const FixedSearchPath search_path;
  LimitLockWaits();
  const Relation table = Pg([&] { return try_relation_open(backfill.relation, RowShareLock); });
  if (table == nullptr) {
    Throw(ERRCODE_UNDEFINED_TABLE, "the table of backfill \"" + backfill.name + "\" was dropped",
          "", "Cancel the backfill with postbox.cancel_backfill.");
  }
  Emitted emitted;
  ChunkRows rows(backfill, table);
  if (rows.Lock(most)) {
    const ActAs owner(backfill.owner, TrustIn(backfill.owner));
    PinSettings();
    ChunkEmitter emitter(backfill, table, &rows);
    const MemoryContext memory = CurrentMemoryContext;
    while (emitted.rows < rows.size()) {
      Pg([] { CHECK_FOR_INTERRUPTS(); });
      emitted.rows = emitter.EmitBatch(emitted.rows);
      MemoryContextSwitchTo(memory);
      if (GetCurrentTimestamp() >= deadline) break;
    }
    if (emitted.rows < rows.size()) rows.Row(emitted.rows - 1);
    emitted.position = emitted.rows < rows.size() ? rows.Key() : rows.end();
  }
  rows.Close();
  Pg([&] { relation_close(table, NoLock); });
  return emitted;
}

// Why the backfill gives way to what is emitted now; empty if it does not have to.
std::string LagProblem(const Backfill& backfill, const std::optional<int64>& most) {
  if (!most.has_value()) return "";
  const std::optional<OutboxLag> lag = LagOf(backfill.outbox);
  if (!lag.has_value()) return "";
  if (lag->is_broken) return "publication " + lag->publication + " is broken";
  if (lag->microseconds.value_or(0) <= *most) return "";
  return "publication " + lag->publication + " lags by more than max_lag, which is " +
         std::to_string(*most / 1000) + " ms";
}

void StoreProgress(const Backfill& backfill, const Emitted& emitted, int64 microseconds) {
  const std::string rows = std::to_string(emitted.rows);
  const std::string took = std::to_string(static_cast<double>(microseconds) / USECS_PER_SEC);
  const std::string since =
      "greatest(extract(epoch FROM clock_timestamp() - b.updated_at)::float8, " + took + ", 1e-6)";
  const Registrar registrar("backfill");
  Parameters parameters;
  parameters.AddText(backfill.name).Add(TEXTARRAYOID, TextArrayValue(emitted.position));
  Run("UPDATE postbox.backfill b SET chunk_after = b.position, position = $2, row_count = "
      "b.row_count + " +
          rows + ", chunk_rows = " + rows + ", chunk_time = " + took +
          " * interval '1 second', rate = coalesce(b.rate * 0.8 + 0.2 * " + rows + " / " + since +
          ", " + rows + " / " + since +
          "), updated_at = clock_timestamp(), waits_for = NULL, last_error = NULL "
          "WHERE b.name = $1",
      parameters);
}

struct ChunkResult {
  std::string outcome;
  uint64 rows = 0;
};

ChunkResult NextChunk(const std::string& name, int most, int64 microseconds,
                      const std::optional<int64>& max_lag) {
  RequireReadCommitted();
  const SpiConnection connection;
  const FixedSearchPath search_path;
  Backfill backfill = ReadBackfill(name);
  if (backfill.state != "active") return {backfill.state};
  const std::string lag = LagProblem(backfill, max_lag);
  if (!lag.empty()) {
    NoteWait(name, lag);
    return {"lagging"};
  }
  backfill = LockBackfill(name);
  if (backfill.state != "active") return {backfill.state};
  const TimestampTz begin = GetCurrentTimestamp();
  const Emitted emitted = EmitChunk(backfill, most, microseconds);
  if (emitted.position.empty()) {
    UpdateBackfill(name,
                   "state = 'done', ended_at = clock_timestamp(), waits_for = NULL, "
                   "last_error = NULL");
    return {"done"};
  }
  StoreProgress(backfill, emitted, GetCurrentTimestamp() - begin);
  return {"emitted", emitted.rows};
}

}  // namespace
}  // namespace postbox

// (backfill text, most_rows int, max_time interval, max_lag interval, OUT outcome, OUT row_count)
POSTBOX_FUNCTION(emit_backfill_chunk) {
  using namespace postbox;
  return Guarded([&]() -> Datum {
    Pg([] { PreventCommandIfReadOnly("emit_backfill_chunk()"); });
    const int most = DatumGetInt32(Argument(fcinfo, 1, "most_rows"));
    if (most < 1 || most > kChunkMostRows) {
      Throw(ERRCODE_INVALID_PARAMETER_VALUE,
            "most_rows must be from 1 to " + std::to_string(kChunkMostRows));
    }
    const int64 time = PositiveTime(Argument(fcinfo, 2, "max_time"), "max_time");
    std::optional<int64> max_lag;
    if (HasArgument(fcinfo, 3)) max_lag = PositiveTime(fcinfo->args[3].value, "max_lag");
    const ChunkResult result = NextChunk(TextArgument(fcinfo, 0, "backfill"), most, time, max_lag);
    TupleDesc descriptor = nullptr;
    Pg([&] { get_call_result_type(fcinfo, nullptr, &descriptor); });
    Datum values[] = {TextValue(result.outcome), Int32GetDatum(static_cast<int32>(result.rows))};
    bool nulls[] = {false, false};
    return Pg([&] {
      return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(descriptor), values, nulls));
    });
  });
}

// postbox.emit_changes: a trigger that emits what a statement has changed in a table, an event for
// each row, as outbox_emit would in a row trigger.
//
// It is called once a statement, with transition tables. PostgreSQL gives a trigger with transition
// tables one kind of change only, so a table has a trigger for each.
//
//  - INSERT: <type>.created, with the new row.
//  - UPDATE: <type>.updated, with the new row, unless nothing in the payload has changed.
//  - DELETE: <type>.deleted, with the old row.
//
// Keys may be exchanged or changed in an UPDATE, and an old row may have no new one (a trigger of
// the partition that it moves to has kept it out). So old and new rows are paired by place only as
// long as their keys are the same.
//
// Rule: what became of the others follows from the keys, all of the statement. A key that only old
// rows have is deleted, one that only new rows have is created, one that both have is updated. Who
// applies the events in the order of each key ends with the rows that the statement has left. To
// know the keys, the transition tables are read again; in memory are the keys of rows that are not
// paired, and nothing else.
//
// A transaction may mute the triggers of its own tables (mute_changes.h). What logical replication
// brings fires no trigger for statements, so it emits nothing. Only its TRUNCATE fires one if that
// is enabled for it. An error would end the apply worker again and again: that is a warning.
//
// Rows are taken in batches. A batch is formatted (row_format.h), if need be under pinned settings,
// where functions of column types may run, and is then stored (store_event.h) under those of the
// session. All runs as the current user. If there are more rows than a batch has, they are read
// twice: first the keys of all events, whose versions are counted in the order of the keys
// (statement_versions.h).
#include "extension/base/relation.h"
#include "extension/emit/change_trigger.h"
#include "extension/emit/mute_changes.h"
#include "extension/emit/statement_versions.h"
#include "extension/trust/act_as.h"
#include "extension/trust/pinned_settings.h"

extern "C" {
#include <executor/executor.h>
#include <executor/tuptable.h>
#include <replication/origin.h>
#include <tcop/utility.h>
#include <utils/tuplestore.h>
}

namespace postbox {
namespace {

constexpr size_t kBatchRows = 1000;
constexpr size_t kBatchBytes = 1024 * 1024;
// Rows that are as they were take memory until the end of their batch, too.
constexpr size_t kReadRows = 8 * kBatchRows;

struct RowChange {
  ChangeKind kind;
  Datum key;
  Datum payload;
};

void CheckCall(const TriggerData& trigger) {
  const TriggerEvent event = trigger.tg_event;
  const auto name = [&] { return Quoted(trigger.tg_trigger->tgname); };
  if (!TRIGGER_FIRED_AFTER(event) || !TRIGGER_FIRED_FOR_STATEMENT(event)) {
    Throw(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED,
          "emit_changes() must be called by an AFTER trigger FOR EACH STATEMENT",
          "Trigger " + name() + " is not one.",
          "Create the triggers with postbox.create_change_triggers.");
  }
  if ((!TRIGGER_FIRED_BY_INSERT(event) && trigger.tg_oldtable == nullptr) ||
      (!TRIGGER_FIRED_BY_DELETE(event) && trigger.tg_newtable == nullptr)) {
    Throw(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED,
          "emit_changes() needs transition tables, which trigger " + name() + " does not have",
          "INSERT needs NEW TABLE, DELETE needs OLD TABLE, UPDATE needs both.",
          "Add REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows, or create the triggers "
          "with postbox.create_change_triggers.");
  }
}

// TRUNCATE does not look at the rows that it removes.
void RefuseTruncate(Relation table) {
  if (MuteTruncate(table)) return;
  const std::string name = Quoted(RelationGetRelationName(table));
  if (!POSTBOX_REPLAYS_REPLICATION) {
    Throw(ERRCODE_FEATURE_NOT_SUPPORTED, "TRUNCATE of " + name + " would emit no events",
          "TRUNCATE does not read the rows that it removes.",
          "Use DELETE. To remove the rows without events, as the owner of the table, run SET LOCAL "
          "postbox.mute_changes = on in the same transaction.");
  }
  Pg([&] {
    ereport(WARNING, (errmsg("a TRUNCATE of %s arrived by logical replication and emits no events",
                             name.c_str()),
                      errhint("Consumers keep the rows. Emit events in the database in which the "
                              "rows were removed.")));
  });
}

// The number of rows that a statement has changed.
int64 ChangedRows(const TriggerData& trigger) {
  Tuplestorestate* rows =
      TRIGGER_FIRED_BY_INSERT(trigger.tg_event) ? trigger.tg_newtable : trigger.tg_oldtable;
  return tuplestore_tuple_count(rows);
}

// A reader of a transition table. Other triggers may read it, too.
class TransitionTable {
 public:
  TransitionTable(Tuplestorestate* rows, TupleDesc columns) : rows_(rows) {
    if (rows_ == nullptr) return;
    Pg([&] {
      place_ = tuplestore_alloc_read_pointer(rows_, EXEC_FLAG_REWIND);
      slot_ = MakeSingleTupleTableSlot(columns, &TTSOpsMinimalTuple);
    });
    Rewind();
  }

  void Rewind() {
    if (rows_ == nullptr) return;
    Pg([&] {
      tuplestore_select_read_pointer(rows_, place_);
      tuplestore_rescan(rows_);
    });
  }

  // The next row, until the next call; nullptr behind the last one.
  TupleTableSlot* Next() {
    return Pg([&]() -> TupleTableSlot* {
      tuplestore_select_read_pointer(rows_, place_);
      // Of a table that is on disk a row is a copy, which the slot frees when it takes the next.
      const MemoryContext before = MemoryContextSwitchTo(slot_->tts_mcxt);
      const bool found = tuplestore_gettupleslot(rows_, true, false, slot_);
      MemoryContextSwitchTo(before);
      return found ? slot_ : nullptr;
    });
  }

  void Close() {
    if (slot_ != nullptr) Pg([&] { ExecDropSingleTupleTableSlot(slot_); });
  }

 private:
  Tuplestorestate* rows_;
  int place_ = 0;
  TupleTableSlot* slot_ = nullptr;
};

// The changes of a statement, in order.
class Changes {
 public:
  Changes(const TriggerData& trigger, RowFormat* format)
      : format_(format),
        table_(RelationGetRelationName(trigger.tg_relation)),
        kind_(TRIGGER_FIRED_BY_INSERT(trigger.tg_event)   ? ChangeKind::kCreated
              : TRIGGER_FIRED_BY_DELETE(trigger.tg_event) ? ChangeKind::kDeleted
                                                          : ChangeKind::kUpdated),
        old_(kind_ == ChangeKind::kCreated ? nullptr : trigger.tg_oldtable,
             RelationGetDescr(trigger.tg_relation)),
        new_(kind_ == ChangeKind::kDeleted ? nullptr : trigger.tg_newtable,
             RelationGetDescr(trigger.tg_relation)) {}

  ChangeKind kind() const { return kind_; }

  // Begins with the first row again. Without `payloads` the changes have none.
  void Restart(bool payloads) {
    has_payloads_ = payloads;
    pass_ = Pass::kPaired;
    old_.Rewind();
    new_.Rewind();
  }

  // What the next rows say, in the current memory context: rows that are as they were say nothing.
  // False if there are no further rows.
  bool Next(std::optional<RowChange>* change) {
    switch (kind_) {
      case ChangeKind::kCreated:
        return NextCreated(change);
      case ChangeKind::kDeleted:
        return NextDeleted(change);
      default:
        return NextUpdated(change);
    }
  }

  void Close() {
    old_.Close();
    new_.Close();
  }

 private:
  // Of an UPDATE, how far its rows have been read.
  enum class Pass { kPaired, kGone, kCome, kDone };

  // The rows at the same place of both tables, with their keys.
  struct Pair {
    TupleTableSlot* old_row;
    TupleTableSlot* new_row;
    std::optional<Datum> old_key;
    std::optional<Datum> new_key;
    bool same_key;
  };

  bool NextCreated(std::optional<RowChange>* change) {
    TupleTableSlot* row = new_.Next();
    if (row == nullptr) return false;
    *change = RowChange{kind_, NewKey(row), Payload(row)};
    return true;
  }

  // No event was ever emitted for a row without a key: it is older than the trigger.
  bool NextDeleted(std::optional<RowChange>* change) {
    TupleTableSlot* row = old_.Next();
    if (row == nullptr) return false;
    if (const auto key = format_->Key(row)) *change = RowChange{kind_, *key, Payload(row)};
    return true;
  }

  bool NextUpdated(std::optional<RowChange>* change) {
    while (pass_ != Pass::kDone) {
      if (const auto pair = NextPair()) {
        *change = ChangeOf(*pair);
        return true;
      }
      const bool all_paired = gone_.empty() && come_.empty();
      pass_ = all_paired ? Pass::kDone : static_cast<Pass>(static_cast<int>(pass_) + 1);
      if (pass_ == Pass::kDone) break;
      old_.Rewind();
      new_.Rewind();
    }
    return false;
  }

  std::optional<Pair> NextPair() {
    Pair pair{old_.Next(), new_.Next(), std::nullopt, std::nullopt, false};
    if (pair.old_row == nullptr && pair.new_row == nullptr) return std::nullopt;
    if (pair.new_row != nullptr) pair.new_key = NewKey(pair.new_row);
    if (pair.old_row != nullptr && pair.new_row != nullptr &&
        format_->AreKeysAlike(pair.old_row, pair.new_row)) {
      pair.old_key = pair.new_key;
      pair.same_key = true;
      return pair;
    }
    if (pair.old_row != nullptr) pair.old_key = format_->Key(pair.old_row);
    pair.same_key =
        pair.old_key && pair.new_key && KeyView(*pair.old_key) == KeyView(*pair.new_key);
    return pair;
  }

  std::optional<RowChange> ChangeOf(const Pair& pair) {
    switch (pass_) {
      case Pass::kPaired:
        if (pair.same_key) {
          if (format_->HaveSamePayload(pair.old_row, pair.new_row)) return std::nullopt;
          return RowChange{ChangeKind::kUpdated, *pair.new_key, Payload(pair.new_row)};
        }
        if (pair.old_key) gone_.emplace(KeyView(*pair.old_key));
        if (pair.new_key) come_.emplace(KeyView(*pair.new_key));
        return std::nullopt;
      case Pass::kGone:
        if (pair.same_key || !pair.old_key || come_.contains(std::string(KeyView(*pair.old_key)))) {
          return std::nullopt;
        }
        return RowChange{ChangeKind::kDeleted, *pair.old_key, Payload(pair.old_row)};
      default:
        if (pair.same_key || !pair.new_key) return std::nullopt;
        return RowChange{gone_.contains(std::string(KeyView(*pair.new_key))) ? ChangeKind::kUpdated
                                                                             : ChangeKind::kCreated,
                         *pair.new_key, Payload(pair.new_row)};
    }
  }

  Datum Payload(TupleTableSlot* row) { return has_payloads_ ? format_->Payload(row) : Datum{0}; }

  Datum NewKey(TupleTableSlot* row) {
    if (const auto key = format_->Key(row)) return *key;
    Throw(ERRCODE_NULL_VALUE_NOT_ALLOWED,
          "a row of " + Quoted(table_) + " has no key for its events",
          "A column of the key (" + format_->key_names() + ") is null.",
          "Declare the columns of the key NOT NULL, or choose other columns.");
  }

  static std::string_view KeyView(Datum key) { return View(key); }

  RowFormat* format_;
  std::string table_;
  ChangeKind kind_;
  TransitionTable old_;
  TransitionTable new_;
  bool has_payloads_ = true;
  Pass pass_ = Pass::kPaired;
  // Keys of rows that are not paired.
  std::unordered_set<std::string> gone_;
  std::unordered_set<std::string> come_;
};

// Stores the events of a statement.
class Emitter {
 public:
  Emitter(const ChangeTrigger& trigger, Oid outbox) : trigger_(trigger), outbox_(outbox) {
    event_.aggregate_type = trigger.aggregate_type();
    event_.schema_version = trigger.schema_version();
    event_.occurred_at = GetCurrentTransactionStartTimestamp();
    AddContextAttributes(&event_.extra);
    // A trigger of the outbox may change the settings.
    for (auto& [name, value] : event_.extra) value = View(TextValue(value));
  }

  // To be called before all events of the statement, with their keys.
  void Count(StatementVersions* versions, bool are_new) {
    outbox_of_versions_ = OpenOutbox(outbox_);
    if (!TakesEventsTogether(outbox_of_versions_.get())) return;
    versions->Count(outbox_of_versions_.get(), event_, &are_new);
    versions_ = versions;
  }

  void Emit(const std::vector<RowChange>& batch) {
    changes_.clear();
    for (const RowChange& change : batch) changes_.push_back(ChangeOf(change));
    if (versions_ != nullptr) return EmitCounted();
    bool all_first = true;
    if (StoreEvents(OpenOutbox(outbox_).get(), event_, changes_, &all_first)) {
      keys_are_new_ = keys_are_new_ && all_first;
      return;
    }
    for (const Change& change : changes_) {
      Pg([] { CHECK_FOR_INTERRUPTS(); });
      SetChange(&event_, change);
      // A trigger of the outbox may have changed it.
      StoreEvent(OpenOutbox(outbox_).get(), event_);
    }
  }

 private:
  void EmitCounted() {
    std::vector<int64> versions;
    for (const Change& change : changes_) {
      versions.push_back(versions_->Next(change.aggregate_id.view));
    }
    const std::shared_ptr<Outbox> outbox = ReopenOutbox(*outbox_of_versions_);
    StoreCountedEvents(outbox.get(), event_, changes_, versions);
  }

  Change ChangeOf(const RowChange& change) const {
    const std::string_view key = View(change.key);
    if (key.empty()) {
      Throw(ERRCODE_INVALID_PARAMETER_VALUE, "the key of a changed row is empty", "",
            "Choose other columns for the key, or reject such rows with a CHECK constraint.");
    }
    return {.aggregate_id = {change.key, key},
            .event_type = trigger_.event_type(change.kind),
            .payload = change.payload,
            .is_likely_first = change.kind == ChangeKind::kCreated && keys_are_new_};
  }

  const ChangeTrigger& trigger_;
  Oid outbox_;
  EmittedEvent event_{};  // what all events of the statement have in common
  std::vector<Change> changes_;
  // Until a key of the statement had a deleted row before.
  bool keys_are_new_ = true;
  // Those of all events, if they were counted before.
  StatementVersions* versions_ = nullptr;
  std::shared_ptr<Outbox> outbox_of_versions_;
};

// Fills the batch, from at most kReadRows rows. False if there are no further rows.
bool FillBatch(Changes* changes, std::vector<RowChange>* batch) {
  Pg([] { CHECK_FOR_INTERRUPTS(); });
  size_t bytes = 0;
  for (size_t rows = 0; rows < kReadRows && batch->size() < kBatchRows && bytes < kBatchBytes;
       ++rows) {
    std::optional<RowChange> change;
    if (!changes->Next(&change)) return false;
    if (!change) continue;
    batch->push_back(*change);
    bytes += View(change->key).size();
    if (change->payload != 0) bytes += View(change->payload).size();
  }
  return true;
}

bool TakeBatch(Changes* changes, const RowFormat& format, std::vector<RowChange>* batch) {
  if (!format.NeedsPinnedSettings()) return FillBatch(changes, batch);
  const FixedSearchPath search_path;
  PinSettings();
  return FillBatch(changes, batch);
}

// Calls `take` with what the rows say, batch after batch.
template <class Take>
void ForEachBatch(Changes* changes, const RowFormat& format, Take&& take) {
  const MemoryContext memory = Pg([] {
    return AllocSetContextCreate(CurrentMemoryContext, "postbox changes", ALLOCSET_DEFAULT_SIZES);
  });
  std::vector<RowChange> batch;
  for (bool are_more = true; are_more;) {
    const MemoryContext before = MemoryContextSwitchTo(memory);
    are_more = TakeBatch(changes, format, &batch);
    if (!batch.empty()) take(batch, before);
    MemoryContextSwitchTo(before);
    batch.clear();
    Pg([&] { MemoryContextReset(memory); });
  }
  Pg([&] { MemoryContextDelete(memory); });
}

void EmitChanges(const TriggerData& data) {
  if (TRIGGER_FIRED_BY_TRUNCATE(data.tg_event)) return RefuseTruncate(data.tg_relation);
  CheckCall(data);
  const int64 rows = ChangedRows(data);
  if (MuteChanges(data.tg_relation, rows)) return;
  Pg([] { PreventCommandIfReadOnly("emit_changes()"); });
  const std::shared_ptr<ChangeTrigger> trigger = FindChangeTrigger(data);
  Changes changes(data, &trigger->format());
  std::optional<Emitter> emitter;
  // A statement that has changed nothing needs no outbox.
  const auto need_emitter = [&] {
    if (!emitter) emitter.emplace(*trigger, trigger->outbox());
  };
  StatementVersions versions;
  if (rows > static_cast<int64>(kBatchRows)) {
    changes.Restart(false);
    ForEachBatch(&changes, trigger->format(), [&](const auto& batch, MemoryContext outer) {
      MemoryContextSwitchTo(outer);
      for (const RowChange& change : batch) {
        CheckKey(View(change.key));
        versions.Add(change.key);
      }
    });
    if (!versions.empty()) {
      need_emitter();
      emitter->Count(&versions, changes.kind() == ChangeKind::kCreated);
    }
    changes.Restart(true);
  }
  ForEachBatch(&changes, trigger->format(), [&](const auto& batch, MemoryContext outer) {
    const MemoryContext inner = MemoryContextSwitchTo(outer);
    need_emitter();
    MemoryContextSwitchTo(inner);
    emitter->Emit(batch);
  });
  versions.Close();
  changes.Close();
}

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(emit_changes) {
  return postbox::Guarded([&] {
    if (!CALLED_AS_TRIGGER(fcinfo)) {
      postbox::Throw(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED,
                     "emit_changes() is a trigger function", "",
                     "Create triggers that call it with postbox.create_change_triggers.");
    }
    postbox::EmitChanges(*reinterpret_cast<const TriggerData*>(fcinfo->context));
    return Datum{0};
  });
}

// Applying one event to one row of a projection's target table, if the event is newer than the row.
//
// Upsert. With every mapped field in the payload, one statement:
//     INSERT ... ON CONFLICT (key) DO UPDATE SET ... WHERE stored.version < incoming.version
// With only some of them (fields that are absent leave their columns alone), UPDATE first, since
// the row that INSERT proposes would have to satisfy NOT NULL and CHECK by itself. Only if there is
// no row, INSERT; the absent columns then take their defaults.
//
// Delete, and tombstones. A deleted key leaves a tombstone (target, key, version) in the inbox's
// tombstone table.
//
// Rule: an event whose version is not greater than that of the tombstone never brings the row back,
// at any timing of two sessions. Neither session sees the other's uncommitted rows. So each writes
// first, and then looks at what the other writes with a dirty read, which sees uncommitted rows and
// waits for their transactions:
//
//     upsert:  U1 write the row
//              U2 look for a tombstone: none: done; newer or equal: delete the row again, stale;
//                 older: remove the tombstone
//     delete:  D1 delete the row if it is older: deleted: write the tombstone, done
//              D2 a row that is not older is there: stale
//              D3 no row: write the tombstone, unless one of that version or a newer one is there
//              D4 look for the row: none: done; older: delete it; newer: take the tombstone back,
//                 stale
//
// The races of an upsert of version 1 and a delete of version 2 of a key that has no row:
//  - U1 before D4. D4 finds the uncommitted row and waits. If the upsert commits, the delete
//    deletes the row; the tombstone stays. If it rolls back, there is no row, and the tombstone
//    stays.
//  - D3 before U2. U2 finds the uncommitted tombstone and waits. If the delete commits, the upsert
//    takes its row out again and is stale. If it rolls back, the row stays.
//  - Both U1 and D3 come before both U2 and D4. Each session waits for the other, and the deadlock
//    detector ends one of them with a transient error; the event is delivered again.
// With the versions the other way round (upsert 2, delete 1), D4 finds the newer row and takes the
// tombstone back, or U2 finds the older tombstone and removes it.
// All other statements write the target first and the tombstones second, so nothing else deadlocks.
//
// An upsert also looks for a tombstone before U1: an event that comes too late is stale, even if
// its content could not be written.
//
// A dirty read of the target needs its primary key index. With another key, or with partitions, D4
// locks the target against writers (SHARE ROW EXCLUSIVE) instead, and then reads normally.
//
// In REPEATABLE READ and SERIALIZABLE a statement does not find a row that was committed after the
// snapshot, but D4 does. Then the delete raises serialization_failure, as an upsert does.
//
// An effect that did not happen. A trigger or a rule may suppress a statement, and a policy may
// hide the row from it. Then it changes no row, as it does if the row is as new as the event. So
// whenever no row was changed, the version that is stored is looked at: only a row that is as new
// makes the event stale, and all else is an error of the event. D4's dirty read sees what a policy
// hides. Where a trigger can have changed what was written, the statement returns the version that
// is stored now. A trigger may keep the row that is to be deleted (a soft delete) if it moves the
// version on to postbox.event_version(): then the row itself keeps older events out.
//
// Tombstones are kept for targets with a projection that deletes. They are on disk, in the table
// <inbox>_tombstone, and are purged after the retention of the inbox; an event older than that may
// bring its row back. Nothing of the protocol is in memory.
#ifndef POSTBOX_EXTENSION_APPLY_PROJECTION_H_
#define POSTBOX_EXTENSION_APPLY_PROJECTION_H_

#include "extension/apply/aggregate_types.h"
#include "extension/apply/column_value.h"
#include "extension/apply/field_watch.h"
#include "extension/apply/inbox_tables.h"
#include "extension/apply/projection_columns.h"
#include "extension/apply/row_set.h"
#include "extension/apply/value_shape.h"
#include "extension/base/statement.h"

namespace postbox {

// The tombstone table of an inbox.
class Tombstones {
 public:
  explicit Tombstones(TombstoneTable table);

  // Notes that `key` was deleted at `version`. False if it was already, at that version or later.
  bool Raise(Oid target, Datum key, int64 version);
  void Remove(Oid target, Datum key);
  // The version at which `key` was deleted, 0 if it was not. Waits for a transaction that is about
  // to delete it.
  int64 Find(Oid target, Datum key);
  // The same for a reader: what its snapshot shows.
  int64 FindCommitted(Oid target, Datum key);

 private:
  const TombstoneTable table_;
  Statement raise_;
  Statement remove_;
  Statement find_;
};

class Projection {
 public:
  // `context` lives as long as the projection.
  Projection(const ProjectionConfig& config, MemoryContext context, Tombstones* tombstones);

  // Writes or deletes the row of the event: kApplied or kStale. Needs an open SPI connection; what
  // is allocated is in the current memory context.
  Outcome Apply(const InboxEvent& event, PayloadJson* payload, bool deletes);

  // The same in steps, for events that are written together (event_set.h). `set` is nullptr if the
  // target does not take sets, see set_target.h.
  RowSet* set() const { return set_.get(); }
  // Whether the event may be one of a set, if its row may.
  bool TakesSetWith(const InboxEvent& event) const;
  // The values of the whole row.
  BoundValues BindRow(const InboxEvent& event, PayloadJson* payload);
  // Writes rows with different keys, and says which of them were newer than what was stored.
  std::vector<bool> WriteSet(std::span<const BoundValues* const> rows);
  // Writes one, which is newer than what is stored or stale.
  Outcome WriteRow(const InboxEvent& event, const BoundValues& bound);
  // To be called with the outcome of each event.
  Outcome Noted(const InboxEvent& event, Outcome outcome);

  // Reads a key from its text: that of the only key column, or a JSON array of several.
  BoundValues BindKeyText(std::string_view text);
  // The version of the row with that key, as the current user may see it. False if there is none.
  bool FindStored(const BoundValues& key, int64* version);
  // The key as it is in a tombstone: keys that are equal have the same text.
  Datum KeyText(const BoundValues& key);

  int64 id() const { return id_; }
  Oid target() const { return target_; }
  // Whether it must be made again when the relation changes.
  bool DependsOn(Oid relation) const {
    const auto& types = relations_of_types_;
    return relation == target_ || std::find(types.begin(), types.end(), relation) != types.end();
  }
  const std::string& target_name() const { return target_name_; }  // quoted, qualified
  // Whether some event type makes it delete.
  bool deletes() const { return deletes_; }
  const std::string& version_column() const { return columns_[key_size_].name; }
  // Shared by the projections of one target and version column.
  void ShareTypes(std::shared_ptr<AggregateTypes> types) { types_ = std::move(types); }
  // Set when a projection of the same target deletes.
  void KeepTombstones() { keeps_tombstones_ = true; }
  bool keeps_tombstones() const { return keeps_tombstones_; }

 private:
  Projection(const ProjectionConfig& config, ProjectionColumns resolved, MemoryContext context,
             Tombstones* tombstones);

  struct Column {
    std::string name;
    AttrNumber number;
    ColumnSource source;
    Oid type;
    size_t place;  // of a JSON field: that of its path
    ValueShape shape;
    ColumnInput input;
    KeyForm key_form;  // of key columns
  };
  // The statements for one set of fields that are in the payload.
  struct Statements {
    Statement upsert;
    Statement update;  // only if fields are absent
  };

  // Which statements on the target run code of users that may suppress or change a row.
  struct RowCode {
    bool writes = false;
    bool deletes = false;
  };
  static RowCode RowCodeOf(Oid target);

  Outcome Upsert(const InboxEvent& event, PayloadJson* payload);
  Outcome Delete(const InboxEvent& event, PayloadJson* payload);
  void BindRest(const InboxEvent& event, PayloadJson* payload, BoundValues* bound);
  void CheckVersion(const InboxEvent& event) const;
  void AddColumn(const ProjectionColumn& resolved, MemoryContext context);
  BoundValues BindKey(const InboxEvent& event, PayloadJson* payload);
  void Bind(const InboxEvent& event, PayloadJson* payload, size_t first, size_t end,
            BoundValues* bound);
  void BindColumn(size_t column, const InboxEvent& event, PayloadJson* payload, BoundValues* bound);
  Datum FieldValue(const Column& column, ColumnInput* input, json::Value value,
                   PayloadJson* payload, bool* null);
  std::shared_ptr<Statements> StatementsFor(const std::string& present);
  std::string UpsertSql(const std::string& present) const;
  std::string UpdateSql(const std::string& present) const;
  std::string ReturningVersion() const;
  std::string Value(size_t column) const;
  std::string KeyCondition() const;
  std::string Older(const std::string& version) const;
  std::vector<Oid> Types(size_t count) const;
  bool Write(const InboxEvent& event, const BoundValues& bound);
  bool RunWrite(Statement& statement, const InboxEvent& event, const BoundValues& bound);
  Outcome DeleteUnseen(const InboxEvent& event, const BoundValues& bound, Datum key);
  bool IsStored(const BoundValues& key);
  bool FindRow(const BoundValues& key, int64* version);
  bool FindPrimaryKey(const BoundValues& key, int64* version);
  bool FindStoredNow(const BoundValues& key, int64* version);
  [[noreturn]] void ThrowNotWritten(const BoundValues& bound, const InboxEvent& event);
  [[noreturn]] void ThrowNotDeleted(const std::string& why) const;

  const int64 id_;
  const Oid target_;
  const std::string target_name_;
  const bool deletes_;
  const size_t key_size_;
  const std::vector<std::string> key_operators_;
  const Oid primary_key_;
  const RowCode code_;
  std::vector<Column> columns_;
  bool key_has_type_ = false;  // the aggregate type is a part of the key
  std::shared_ptr<AggregateTypes> types_;
  std::vector<Oid> relations_of_types_;  // of composite types
  json::Paths paths_;                    // of all JSON fields
  // Whether the key, or another column, takes a JSON field.
  bool key_reads_payload_ = false;
  bool rest_reads_payload_ = false;
  FieldWatch watch_;
  bool keeps_tombstones_ = false;
  Tombstones* const tombstones_;

  // How many calls are reading values: more than one if a constraint of a domain applies events.
  int binding_ = 0;

  const std::string all_present_;
  // The caller keeps the one that it runs: a call within it may remove it here.
  std::unordered_map<std::string, std::shared_ptr<Statements>> statements_;
  std::shared_ptr<Statements> full_;  // those for all_present_
  std::unique_ptr<RowSet> set_;
  Statement delete_older_;
  Statement delete_any_;
  Statement stored_version_;
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_PROJECTION_H_

// A projection at work: one event onto one row of the target table, if it is newer than the row.
//
// Upsert. With every mapped field in the payload, one statement:
//     INSERT ... ON CONFLICT (key) DO UPDATE SET ... WHERE stored.version < incoming.version
// With only some of them (fields that are absent leave their columns alone), UPDATE first, since
// the row that INSERT proposes would have to satisfy NOT NULL and CHECK by itself; only if there is
// no row, INSERT, where the absent columns take their defaults.
//
// Delete, and what may never happen afterwards. A deleted key leaves a tombstone (target, key,
// version) in the inbox's tombstone table, and an event that is not newer than the tombstone must
// not bring the row back, at any timing of two sessions. Neither session sees the other's
// uncommitted row, so each writes first and then looks at the other's table with a dirty read that
// waits:
//     upsert:  write the row,       then look for a tombstone (newer: take the row out again;
//                                   older: remove it)
//     delete:  delete the row; if there was none: write the tombstone, then look for the row
//              (found: delete again, or, if the row is newer, take the tombstone back)
// Whoever writes second sees the first. If both write at once, both wait for each other, and the
// deadlock detector ends one with a transient error. Both write the target first and the tombstones
// second, so nothing else deadlocks. (An upsert also looks for a tombstone before anything else: an
// event that comes too late is stale, whatever is wrong with it.) A dirty read of the target needs
// its primary key index; with another key, or partitions, the delete of an unknown key locks the
// target against writers instead.
//
// Tombstones are kept for targets with a projection that deletes.
#ifndef POSTBOX_EXTENSION_INBOX_PROJECTION_H_
#define POSTBOX_EXTENSION_INBOX_PROJECTION_H_

#include "extension/base/statement.h"
#include "extension/inbox/column_value.h"
#include "extension/inbox/projection_columns.h"

namespace postbox {

// The tombstone table of an inbox.
class Tombstones {
 public:
  Tombstones(Oid relation, Oid index, const std::string& name);

  // Notes that `key` was deleted at `version`. False if it was already, at that version or later.
  bool Raise(Oid target, Datum key, int64 version);
  void Remove(Oid target, Datum key);
  // The version at which `key` was deleted, 0 if it was not. Waits for a transaction that is about
  // to delete it.
  int64 Find(Oid target, Datum key);
  // The same, for a reader: what is committed.
  int64 FindCommitted(Oid target, Datum key);

 private:
  const Oid relation_;
  const Oid index_;
  Statement raise_;
  Statement remove_;
  Statement find_;
};

class Projection {
 public:
  // `context` lives as long as the projection.
  Projection(const ProjectionConfig& config, MemoryContext context, Tombstones* tombstones);

  // kApplied or kStale. Needs an open SPI connection; what is allocated is in the current memory
  // context.
  Outcome Upsert(const InboxEvent& event, PayloadJson* payload);
  Outcome Delete(const InboxEvent& event, PayloadJson* payload);

  // Reads a key from its text: that of the only key column, or a JSON array of several.
  void BindKeyText(std::string_view text);
  // The version of the row with the bound key, as the current user may see it. False if there is
  // none.
  bool FindStored(int64* version);
  // The bound key as it stands in a tombstone.
  Datum KeyText();

  int64 id() const { return id_; }
  Oid target() const { return target_; }
  const std::string& target_name() const { return target_name_; }  // quoted, qualified
  // Whether some event type makes it delete.
  bool deletes() const { return deletes_; }
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
    ColumnInput input;
    FmgrInfo output;  // of key columns
  };
  // The statements for one set of fields that are in the payload.
  struct Statements {
    Statement upsert;
    Statement update;  // only if fields are absent
  };

  void CheckVersion(const InboxEvent& event) const;
  void Bind(const InboxEvent& event, PayloadJson* payload, size_t count);
  void BindColumn(size_t column, const InboxEvent& event, PayloadJson* payload);
  Statements& StatementsFor(const std::string& present);
  std::string UpsertSql(const std::string& present) const;
  std::string UpdateSql(const std::string& present) const;
  std::string Value(size_t column) const;
  std::string KeyCondition() const;
  std::string Older() const;
  std::vector<Oid> Types(size_t count) const;
  bool IsStored();
  bool FindRow();

  const int64 id_;
  const Oid target_;
  const std::string target_name_;
  const bool deletes_;
  const size_t key_size_;
  const std::vector<std::string> key_operators_;
  const Oid primary_key_;
  std::vector<Column> columns_;
  bool keeps_tombstones_ = false;
  Tombstones* const tombstones_;

  // The values of one event, in the order of columns_.
  std::vector<Datum> values_;
  std::vector<char> nulls_;
  std::string present_;  // '1' or '0' for each column

  const std::string all_present_;
  std::unordered_map<std::string, Statements> statements_;
  Statements* full_ = nullptr;  // those for all_present_
  Statement delete_older_;
  Statement delete_any_;
  Statement stored_version_;
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_INBOX_PROJECTION_H_

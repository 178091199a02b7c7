// The rows of a projection's target: writing, deleting and finding one, and what became of a row
// that was not changed. projection.h has the protocol that this serves, with its steps U1 to D4.
//
// With every mapped field in the payload, one statement writes:
//     INSERT ... ON CONFLICT (key) DO UPDATE SET ... WHERE stored.version < incoming.version
// With only some of them (fields that are absent leave their columns alone), UPDATE first, since
// the row that INSERT proposes would have to satisfy NOT NULL and CHECK by itself. Only if there is
// no row, INSERT; the absent columns then take their defaults.
//
// A dirty read of the target needs its primary key index. With another key, or with partitions, D4
// locks the target against writers (SHARE ROW EXCLUSIVE) instead, and then reads normally.
//
// An effect that did not happen. A trigger or a rule may suppress a statement, and a policy may
// hide the row from it. Then it changes no row, as it does if the row is as new as the event. So
// whenever no row was changed, the version that is stored is looked at: only a row that is as new
// makes the event stale, and all else is an error of the event. D4's dirty read sees what a policy
// hides. Where a trigger can have changed what was written, the statement returns the version that
// is stored now. A trigger may keep the row that is to be deleted (a soft delete) if it moves the
// version on to postbox.event_version(): then the row itself keeps older events out.
#ifndef POSTBOX_EXTENSION_APPLY_TARGET_ROWS_H_
#define POSTBOX_EXTENSION_APPLY_TARGET_ROWS_H_

#include "extension/apply/bound_values.h"
#include "extension/apply/dirty_find.h"
#include "extension/apply/projection_columns.h"
#include "extension/apply/write_statements.h"

namespace postbox {

struct RowDifference {
  const char* problem = nullptr;     // nullptr if nothing differs; see postbox.audit_rows
  int64 stored = 0;                  // the version of the row
  std::vector<std::string> details;  // the columns that differ, or why they are not compared
};

class TargetRows {
 public:
  // Needs SPI.
  TargetRows(Oid target, const ProjectionColumns& columns);

  Oid target() const { return target_; }
  const std::string& name() const { return name_; }  // quoted, qualified

  // Writes the row of an event of this version. False if there is one that is as new.
  bool Write(const BoundValues& row, int64 version);
  // Deletes the row with the key; the first only if it is older than the version of `row`. Whether
  // it did.
  bool DeleteOlder(const BoundValues& row);
  bool DeleteAny(const BoundValues& row);
  // Of the shadow of a rebuild (shadow_marks.h), which keeps the version of a delete in a row, and
  // so needs no tombstone. False if there is a row that is as new.
  bool is_shadow() const { return mark_deleted_.has_text(); }
  bool MarkDeleted(const BoundValues& row, int64 version);

  // The version of the row with that key, as the current user may see it. False if there is none.
  bool FindStored(const BoundValues& key, int64* version);
  // The same of a committed row, whatever the snapshot of the transaction shows.
  bool FindStoredNow(const BoundValues& key, int64* version);
  // D4: the same of a row that need not be committed, whatever policies hide.
  bool FindAny(const BoundValues& key, int64* version);

  // What differs between the row with that key and the values of an event, which may leave out
  // columns. It changes nothing.
  RowDifference Compare(const BoundValues& row, int64 version);

  // Whether a trigger may keep a row that is deleted.
  bool may_keep_deleted() const { return code_.deletes; }
  // The errors of a row that was to be deleted: it is still there, with that version; or only
  // hidden.
  [[noreturn]] void ThrowKept(int64 version) const;
  [[noreturn]] void ThrowHidden() const;

 private:
  // Which statements on a table run code of users that may suppress or change a row.
  struct RowCode {
    explicit RowCode(Oid table);

    bool writes = false;
    bool deletes = false;
  };

  bool RunWrite(Statement& statement, const BoundValues& row, int64 version);
  bool FindPrimaryKey(const BoundValues& key, int64* version);
  [[noreturn]] void ThrowNotWritten(const BoundValues& row, int64 version);
  [[noreturn]] void ThrowNotDeleted(const std::string& why) const;

  const Oid target_;
  const std::string name_;
  const Oid primary_key_;  // InvalidOid: no dirty read
  const RowCode code_;
  std::vector<std::string> columns_;
  std::vector<SearchColumn> key_;  // without values
  const VersionColumn version_;
  WriteStatements writes_;
  Statement delete_older_;
  Statement delete_any_;
  Statement mark_deleted_;
  Statement stored_version_;
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_TARGET_ROWS_H_

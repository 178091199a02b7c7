// Applying one event to one row of a projection's target table, if the event is newer than the row.
//
// The parts: EventBinder reads the values of the event, ProjectionKey says which row it means,
// TargetRows writes and finds rows. What a delete and a late upsert do to each other is here.
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
// Generations. Tombstones lie in three generations (tombstones.h). D1 and D3 write into the current
// one, which is the same for all transactions that are open, and the others gain none. So U2 looks
// with a dirty read at the current one, and takes of the others what the look before U1 has found;
// D3 takes a version of the others as it sees it. Only a removal there may be uncommitted: of U2,
// which has written a row with a newer version, or of D4, which has found one. Whether it counts or
// not, an event that is not newer than the tombstone is stale, and a newer one waits for that row.
//
// In REPEATABLE READ and SERIALIZABLE a statement does not find a row that was committed after the
// snapshot, but D4 does. Then the delete raises serialization_failure, as an upsert does.
//
// Tombstones are kept for targets with a projection that deletes. They are on disk, in the table
// <inbox>_tombstone, and are purged after the retention of the inbox; an event older than that may
// bring its row back. Nothing of the protocol is in memory.
#ifndef POSTBOX_EXTENSION_APPLY_PROJECTION_H_
#define POSTBOX_EXTENSION_APPLY_PROJECTION_H_

#include "extension/apply/aggregate_types.h"
#include "extension/apply/event_binder.h"
#include "extension/apply/projection_key.h"
#include "extension/apply/row_set.h"
#include "extension/apply/target_rows.h"
#include "extension/apply/tombstones.h"

namespace postbox {

class Projection {
 public:
  // `context` lives as long as the projection. Needs an open SPI connection.
  Projection(const ProjectionConfig& config, MemoryContext context, Tombstones* tombstones);

  // Writes or deletes the row of the event: kApplied or kStale. Needs an open SPI connection; what
  // is allocated is in the current memory context.
  Outcome Apply(const InboxEvent& event, PayloadJson* payload, bool deletes);

  // What differs between the row and what the event has written there, if it is the last one of its
  // key. It changes nothing.
  RowDifference Compare(const InboxEvent& event, PayloadJson* payload, bool deletes);

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
  // To be called with the outcome of each event: a commit wakes the sessions that wait for its row.
  // `row` is its hash.
  Outcome Noted(const InboxEvent& event, uint32 row, Outcome outcome);
  // Of the target and the key, or its text, for NotifyAppliedAtCommit().
  uint32 HashOf(const BoundValues& key);
  uint32 HashOf(std::string_view key_text) const;

  ProjectionKey& key() { return key_; }
  TargetRows& rows() { return rows_; }
  Oid target() const { return rows_.target(); }
  const std::string& target_name() const { return rows_.name(); }  // quoted, qualified
  // Whether it must be made again when the relation changes.
  bool DependsOn(Oid relation) const {
    return relation == rows_.target() || binder_.DependsOn(relation);
  }
  // Whether some event type makes it delete.
  bool deletes() const { return deletes_; }
  const std::string& version_column() const { return version_column_; }
  // Shared by the projections of one target and version column.
  void ShareTypes(std::shared_ptr<AggregateTypes> types) { types_ = std::move(types); }
  // Set when a projection of the same target deletes.
  void KeepTombstones() { keeps_tombstones_ = true; }
  bool keeps_tombstones() const { return keeps_tombstones_; }

 private:
  Projection(const ProjectionConfig& config, const ProjectionColumns& columns,
             MemoryContext context, Tombstones* tombstones);

  Outcome NotedOf(const InboxEvent& event, const BoundValues& key, Outcome outcome);
  Outcome Upsert(const InboxEvent& event, PayloadJson* payload, BoundValues* values);
  Outcome Delete(const InboxEvent& event, const BoundValues& bound);
  Outcome DeleteUnseen(const InboxEvent& event, const BoundValues& bound, Datum key);

  const int64 id_;
  const bool deletes_;
  const std::string version_column_;
  const bool key_has_type_;  // the aggregate type is a part of the key
  ProjectionKey key_;
  EventBinder binder_;
  TargetRows rows_;
  std::unique_ptr<RowSet> set_;
  std::shared_ptr<AggregateTypes> types_;
  bool keeps_tombstones_ = false;
  Tombstones* const tombstones_;
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_PROJECTION_H_

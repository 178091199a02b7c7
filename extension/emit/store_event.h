// Storing an event in an outbox, in the transaction of its caller, as the caller.
//
// Rights. INSERT on the outbox is the permission to emit. The row is inserted as the caller and
// under the caller's search_path, so that column privileges, row security and triggers count as for
// a plain INSERT. What the caller needs no rights on (the version counter, the search for a stored
// event) is done as the owner of the outbox, under a fixed search_path.
//
// Order. Rule: within an aggregate, seq, version and commit have the same order. So the row of the
// aggregate in the version counter is locked first, and the sequence number is taken second.
//
//  1. T1 counts the aggregate's version up (INSERT ... ON CONFLICT DO UPDATE): it now has the lock
//     on the counter's row, until it ends.
//  2. T2 emits for the same aggregate. Its statement waits for T1.
//  3. T1 takes its seq, inserts, and commits. T2 goes on: it sees the version of T1 and takes the
//     next one, and after that a greater seq.
//     If T1 rolls back instead, T2 sees the version before T1, and takes the one that T1 had. The
//     seq of T1 is a gap, which readers tolerate.
// In the other order, T2 could take its seq before T1 and its version after.
//
// A caller that gives its own version to a `log` outbox is trusted to have locked its
// aggregate: the event costs one INSERT, and no counter. A `table` outbox refuses a version that is
// not greater than the last one.
//
// source_event_id makes the event_id, so that an event emitted twice for one source is stored once.
// Rule: look, lock, look again.
//
//  1. T1 and T2 derive the same event, and neither sees the other's row.
//  2. T1 locks the counter's row of the aggregate; T2 waits for it.
//  3. T1 stores the event and commits. T2 has the lock, looks again with a new snapshot, finds the
//     event, and returns it. No version was used.
//
// event_id names an event that must not be in the outbox yet. A `table` has a unique index on it.
// The index of a `log` is unique within a generation, and all are looked at before. (Two
// transactions that give one id at the same time, one of which began before a new generation and
// the other after, do not see each other.)
//
// On disk are the event and, unless the log's caller counts, the counter's row: in the tables of
// the outbox, both written by the caller's transaction. In memory is the flag that wakes the
// workers at commit (lifecycle/wakeup.h).
//
// Cost: an event of a log is a few accesses to its tables and indexes (plain_table.h), or where
// these are no plain tables, the executor's work for one INSERT and the statement that counts.
#ifndef POSTBOX_EXTENSION_EMIT_STORE_EVENT_H_
#define POSTBOX_EXTENSION_EMIT_STORE_EVENT_H_

#include "extension/emit/emitted_event.h"
#include "extension/emit/outbox_cache.h"

namespace postbox {

struct Receipt {
  pg_uuid_t id;
  int64 version;
};

// The outbox into which the current user emits: `relation` if it is valid, else that of the
// setting, else the only one. Locked, and the current user may insert into it.
std::shared_ptr<Outbox> OpenOutbox(Oid relation);

// Stores the event, gives it a version if it has none, and has the workers woken at COMMIT. Returns
// the receipt of the event of the same source if that is stored already.
Receipt StoreEvent(Outbox* outbox, const EmittedEvent& event);

// What differs between the events of a statement.
struct Change {
  Text aggregate_id;
  Text event_type;
  Datum payload;
  bool is_likely_first;  // of its aggregate
};

// Makes it the event of that change, with a new id.
void SetChange(EmittedEvent* event, const Change& change);

// Whether the events of a statement can be stored by the functions below: the outbox is a log, and
// its tables are plain. If not, StoreEvent has to store them.
bool TakesEventsTogether(Outbox* outbox);

// Stores events of one aggregate type, in their order, with versions that Postbox counts, as
// StoreEvent would one after the other. `common` has all else. False, and nothing is done, if they
// have to be stored by that. Sets `all_first` to whether those that were likely to be the first of
// their aggregates were. Allocates in the current memory context.
//
// Order. All versions are counted before the first seq is taken, in the order of the keys: two
// statements lock what both count in the same order, and so cannot wait for each other. One with
// more events than are stored at a time counts all of them first (statement_versions.h), by the two
// functions below. And what is next to each other in the index of the counter is looked for one
// after the other.
bool StoreEvents(Outbox* outbox, const EmittedEvent& common, std::span<const Change> changes,
                 bool* all_first);

// Counts the versions of events of which only keys are given.
std::vector<int64> CountVersions(Outbox* outbox, const EmittedEvent& common,
                                 std::span<const Change> changes);

// Opens the outbox again for which versions were counted, before their events are stored: code of
// users may have run meanwhile. Throws if the outbox was altered.
std::shared_ptr<Outbox> ReopenOutbox(const Outbox& counted);

// Stores events with versions that were counted.
void StoreCountedEvents(Outbox* outbox, const EmittedEvent& common, std::span<const Change> changes,
                        std::span<const int64> versions);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_EMIT_STORE_EVENT_H_

// Writing to a table without the executor, where all that the executor would do is to write: into
// a heap and btree indexes on columns, with no triggers, rules, row security, generated columns, or
// CHECKs but one that Postbox has made.
//
// To set up and tear down the executor costs more than the row: it makes a plan's state, opens the
// table and its indexes, and reads the CHECKs from their text, each time.
//
// Rule: what is done here is what the executor would do for the same row with the same rights, or
// nothing. Whether a table is plain is looked at each time it is opened. If it is not, or another
// session is at the row, the functions say so, and the caller runs its statement.
//
// The caller has checked the rights. No code of a user runs in here.
//
// These are PostgreSQL calls: make them inside Pg() (base/guard.h). After an error the resource
// owner closes what is open.
#ifndef POSTBOX_EXTENSION_EMIT_PLAIN_TABLE_H_
#define POSTBOX_EXTENSION_EMIT_PLAIN_TABLE_H_

#include "extension/base/guard.h"

extern "C" {
#include <nodes/execnodes.h>
}

namespace postbox {

struct PlainColumn {
  const char* name;
  Oid type;
};

struct PlainTable {
  static constexpr int kMaxIndexes = 8;
  Relation relation;
  TupleTableSlot* updated;  // for what is written over a row; nullptr until then
  TupleTableSlot* stored;   // for what is read, likewise
  int indexes;
  Relation index[kMaxIndexes];
};

// Opens a table that is plain and has exactly these columns. It may have one CHECK: that the column
// `positive` (nullptr for none) is greater than 0, to which the caller holds. Takes the locks of a
// writer on the table and its indexes, which last until the end of the transaction: the next event
// of it would take them again. False if the table is not as described.
// `trigger` is the function of triggers that have nothing to do for the caller's rows.
bool OpenPlainTable(Oid table, std::span<const PlainColumn> columns, const char* positive,
                    Oid trigger, PlainTable* opened);
void ClosePlainTable(PlainTable* table);

// Inserts a row, of values in the order of the columns, none of them NULL. Raises unique_violation.
void InsertRow(PlainTable* table, const Datum* values);

// A version counter: (aggregate_type text, aggregate_id text, version bigint), with a unique index
// on the first two, which compares as the columns do and has all that this transaction sees, and no
// other. False if it is not so, or if the counter is a partition.
bool OpenCounterTable(Oid counter, PlainTable* opened);

// Some events of one aggregate.
struct EventCount {
  Datum aggregate_id;
  int64 events;
  // The row of such an aggregate is made without a look whether there is one. If that fails, it
  // leaves a dead row behind, and is not tried for the next ones.
  bool is_likely_new;
  int64 version;  // of the last event
  uint32 place;   // the caller's
};

// Counts the versions of aggregates of one type up, in their order, as one statement with a new
// snapshot would, and locks their rows. No aggregate may be there twice. The first event of a new
// aggregate has version `first`. Returns how many it has counted: the next one has to be counted by
// a statement, since another session wrote its row. It waits for a transaction that has changed
// a row, and has counted none of those behind it then.
size_t CountUpInTable(PlainTable* counter, Datum aggregate_type, int64 first,
                      std::span<EventCount> counts);

// Sets the version of an aggregate to `version`, or makes its row, likewise. False if the statement
// has to do it: another session has written the row since, or it has that version or a later one.
bool RaiseInTable(PlainTable* counter, Datum aggregate_type, Datum aggregate_id, int64 version);

// Whether a version counter has a row of this type, committed or not. True if that cannot be said
// without a statement.
bool MayHaveRowOfType(Oid counter, Datum aggregate_type);

// A log with generations whose partition for this generation is plain. The caller has locked the
// log. `stamp`: the function of the trigger that gives rows what the caller gives (stamp.h). False
// if it is not so.
bool OpenLogPartition(Oid log, int16 generation, Oid stamp, PlainTable* opened);

// The row of an event, by the columns of a log.
struct LogRow {
  Datum txid, seq, id, aggregate_type, aggregate_id, event_type, version, schema_version, payload,
      attributes, occurred_at, origin, generation;
};
inline void InsertIntoLogPartition(PlainTable* log, const LogRow& row) {
  InsertRow(log, &row.txid);
}

// Inserts many rows: the table gets them a page at a time, and each index gets all of them before
// the next one does. That takes less time and less WAL than one row after the other. Allocates in
// the current memory context, and frees nothing.
void InsertIntoLogPartition(PlainTable* log, std::span<const LogRow> rows);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_EMIT_PLAIN_TABLE_H_

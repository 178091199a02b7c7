// The SQL of the table outbox. Text only; event_table.cc runs it.
//
// Every statement is written so that it has one sensible plan whatever the statistics say, because
// a plan is kept and the table was empty when it was made: one table, rows found by ctid or through
// the one index that fits. (base/registration.cc switches sequential and bitmap scans, sorts and
// hash joins off for its session.)
//
// The states of a row are described in table_outbox.h.
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_TABLE_TABLE_OUTBOX_SQL_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_TABLE_TABLE_OUTBOX_SQL_H_

#include <string>

#include "extension/shared/outbox_columns.h"
#include "worker/publisher/delivery/parked_queue_sql.h"

namespace postbox::publisher {

struct TableOutboxSql {
  // Rows that wait, in the order of seq: ctid, seq, key, payload and attributes as they
  // are stored, for their size, and the predecessor: the nearest earlier unpublished row of the
  // key, its seq negative if that row is parked. Among them are rows that others have leased, whose
  // predecessor is NULL.
  // $1, $2 bigint[]: ranges of seqs, in order: after the one and up to the other; $3 int: at most;
  // $4 text[]: without these keys; $5 text: our own lock token; $6 text[]: aggregate types, if
  // filtered.
  std::string waiting;
  // The seq of the first such row, of any type. $1, $2 as above; $3 text: our own lock token.
  std::string next_waiting;
  // The rows of `waiting` that are parked and whose time has come, in the order of their time, and
  // whether each begins a run of republished events. $1 int: at most; $2 text[]: aggregate types.
  std::string due;
  // The unpublished rows of keys behind a row of each, in the order of seq. $1 text[]: keys; $2
  // bigint[]: that row's seq; $3 int: at most; $4 int: of a key; $5 text[]: aggregate types.
  // Returns the same columns, but the last says whether the row waits behind a parked one.
  std::string followers;
  // The first row of each key behind a row of it that is leased, or that a claim could take: key,
  // seq, ctid, and whether it is leased. $1 text[]: keys; $2 bigint[]: seqs; $3 text[]: aggregate
  // types.
  std::string first_open;
  // Locks those that do. $1 tid[]. Returns seq and ctid.
  std::string lock_behind;
  // Locks rows that still wait or are due, without waiting for anyone. $1 tid[]. Returns seq and
  // ctid.
  std::string lock;
  // Leases locked rows and returns what a message is made of, publish_attempts, and whether the row
  // was parked or behind: then it has next_retry_at = -infinity as long. $1 tid[], $2 text: lock
  // token.
  std::string lease;

  // $1 text[]: ids, $2 text: lock token. Each changes the rows that are still under our lease.
  std::string confirm;
  // The same for rows that are still where they were leased. $3 tid[]: where each is.
  std::string confirm_at;
  std::string expire;          // is not sent
  std::string release;         // waits again; one that was parked or behind is due
  std::string release_behind;  // parked behind its predecessor
  // $1 text: id, $2 text: lock token, $3 to $5 as Retry() has them.
  std::string park;
  // The same for a row without an id. $1 bigint: seq.
  std::string park_seq;
  // Parks unleased rows that cannot be read. $1 tid[]; $2 text: error; $3 int: max_attempts; $4, $5
  // float8: base and greatest backoff in seconds.
  std::string park_unreadable;

  // Leases among the first rows that wait, the first that are due, and rows that were seen: ctid,
  // seq, lock_token, whether the time-out is over, whether locked_at means nothing (it is missing,
  // or more than a day ahead). Also rows that are marked as leased retries and are none. $1, $2
  // bigint[]: ranges of seqs; $3 float8: lease time-out in seconds; $4 int: of so many rows; $5
  // tid[]: rows that were seen.
  std::string leases;
  // Gives leases back. $1 tid[]; $2 text[]: their lock tokens; $3 as above; $4 bool: at whatever
  // age.
  std::string take_over;
  // Whether any row is behind another one.
  std::string any_behind;

  ParkedQueueSql queue;
};

// `relation` is the quoted, qualified name. `columns`: see outbox_columns.h; state columns and seq
// have the same names everywhere. `ordered`: the order of a key is kept (else no row has a
// predecessor). `parked_blocks`: a parked row stops its key (on_failure = 'park_key'). `typed`:
// only some aggregate types.
TableOutboxSql MakeTableOutboxSql(const std::string& relation, const OutboxColumns& columns,
                                  bool ordered, bool parked_blocks, bool typed);

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_TABLE_TABLE_OUTBOX_SQL_H_

// The SQL of the log outbox. Text only; log_outbox.cc runs it.
//
// The reads of the log run under one snapshot that log_outbox.cc has pushed. Each statement goes
// through one index whatever the statistics say, since its plan may be from when there was next to
// nothing in the table: (origin, seq) or (txid, seq) of the log, one of the three of parked events.
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_LOG_OUTBOX_SQL_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_LOG_OUTBOX_SQL_H_

#include <string>

#include "worker/publisher/delivery/parked_queue_sql.h"

namespace postbox::publisher {

struct LogOutboxSql {
  // Whether the log has rows of other clusters that may have to be settled, and how often such rows
  // have been. $1 text: publication.
  std::string foreign;
  // Whether there is a row that was read: $1 bigint: up to this seq; $2 text: of a transaction that
  // this pg_snapshot sees; $3 xid8: its xmax. Most often the first row is one; if the first has a
  // greater seq, all have. No row if the log is empty.
  std::string any_read;
  // Which transactions of a range have rows of the lane, and the first seq of each, in its order.
  // $1, $2 xid8: above, before; $3, $4 bigint: after seq, up to seq; $5 int: how many; $6: types.
  std::string late_txids;
  // Whether any has: a row. Cheaper where the range has few rows, since it looks at all of them.
  // $1 to $4 as above; $5: types.
  std::string any_late;
  // Rows that appeared late, in the order of seq. $1 xid8[]: their transactions; $2, $3 bigint:
  // after, up to; $4 int: at most, and all rows with the last seq; $5 int: all the same at most; $6
  // text[]: aggregate types, if filtered.
  std::string late;
  // New rows, in the order of seq. $1, $2 bigint: after, up to; $3 int: at most; $4 text[]:
  // aggregate types, if filtered.
  std::string plain;
  // The same. $1, $2 bigint: after, up to; $3, $4 int: at most, as in `late`; $5
  // text[]: aggregate types, if filtered.
  std::string fresh;
  // The same rows with the columns seq and aggregate_id only. Parameters as above.
  std::string late_keys;
  std::string fresh_keys;
  // The last seq of the transaction that has written a row. $1, $2 bigint: the row's seq; up to.
  std::string transaction_of;
  // The same columns for rows that are known, in the order of seq. $1 bigint[]; $2 text[]: types.
  // Those of another lane, from which this one was made, are left to it.
  std::string again;
  std::string again_keys;

  // Moves rows aside. $1 text: publication; $2 bigint[]: seqs; $3 text[]: their keys, since a seq
  // may be there twice; $4 bool: an earlier row of their key is held, so they wait behind it.
  std::string park_behind;
  // $1 text: publication; $2 bigint: seq; $3 int: attempts; $4 text: error, empty if it is only
  // delayed; $5 float8: seconds until the next try, or infinity;
  // $6 text: the key, since the seq may be there twice, or the
  // log have been emptied. Returns the id.
  std::string park;
  // The same for a row that cannot be an event: with what can be stored of it.
  std::string park_unreadable;
  // Copies rows from the log that can be events now. $1 text: publication; $2 text[]: ids.
  std::string repair;
  // Locks rows. $1 text: publication; $2 text[]: ids. Returns ctid.
  std::string lock;
  // $1 tid[]: locked rows.
  std::string unpark;
  // A parked row failed again. $1 text: publication; $2 text: id; $3 text: error; $4 float8: as
  // above.
  std::string park_again;

  // Rows whose time has come, the longest due first. Returns key, seq, id. $1 text:
  // publication; $2 int: at most; $3 text[]: without these keys.
  std::string due;
  // Parked rows: the columns of the log, publish_attempts, and why the row cannot be an event. $1
  // text: publication. Key by key, in the order of seq: $2 text[]: keys; $3 bigint[]: of each, a
  // seq below its rows; $4 int: at most. Or $2 text[]: ids.
  std::string rows_of_keys;
  std::string rows_of_ids;

  ParkedQueueSql queue;
};

// `log` and `parked` are quoted, qualified names. `origin` is that of this cluster: other rows are
// not read. The lane takes the keys of `slice` out of `lanes`.
LogOutboxSql MakeLogOutboxSql(const std::string& log, const std::string& parked, int origin,
                              int slice, int lanes, bool typed);

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_LOG_OUTBOX_SQL_H_

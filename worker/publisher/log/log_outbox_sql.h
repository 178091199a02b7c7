// The SQL of the log outbox. Text only; log_outbox.cc runs it.
//
// The reads of the log run under one snapshot that log_outbox.cc has pushed, and each goes through
// one index whatever the statistics say: (seq), or (txid, seq).
#ifndef POSTBOX_WORKER_PUBLISHER_LOG_LOG_OUTBOX_SQL_H_
#define POSTBOX_WORKER_PUBLISHER_LOG_LOG_OUTBOX_SQL_H_

#include <string>

namespace postbox::publisher {

struct LogOutboxSql {
  // The last value that the sequence gave out, 0 if none. $1 regclass: the sequence.
  std::string last_seq;
  // Which transactions of a range have rows. $1, $2 xid8: from, before; $3, $4 bigint: after seq,
  // up to seq.
  std::string late_txids;
  // Rows that appeared late, in the order of seq. $1 xid8[]: their transactions; $2, $3 bigint:
  // after, up to; $4 int: at most; $5 text[]: aggregate types, if filtered.
  std::string late;
  // New rows, in the order of seq. $1, $2 bigint: after, up to; $3 int: at most; $4 text[]:
  // aggregate types, if filtered.
  std::string fresh;
  // The same columns for rows that are known. $1 bigint[].
  std::string again;

  // Moves rows aside. $1 text: publication; $2 bigint[]: seqs; those are parked behind another one.
  std::string park_behind;
  // $1 text: publication; $2 bigint: seq; $3 int: attempts; $4 text: error; $5 float8: seconds
  // until the next try, or infinity. Returns the id.
  std::string park;
  // The same for a row that cannot be an event: with what can be stored of it.
  std::string park_unreadable;
  // Copies rows from the log that can be events now. $1 text: publication; $2 text[]: ids.
  std::string repair;
  // Keys of parked rows of this lane. $1 text: publication.
  std::string parked_keys;
  // Parked rows that may be tried now: those that are due, or behind a row that is gone, and
  // have no earlier parked row of their key. Returns aggregate_id. $1 text: publication; $2 int: at
  // most; $3 text[]: without these keys.
  std::string due_keys;
  // The parked rows of keys, in the order of seq: the columns of the log, publish_attempts, and
  // whether the row is due. $1 text: publication; $2 text[]: keys; $3 int: at most.
  std::string parked_rows;
  // $1 text: publication; $2 text[]: ids.
  std::string unpark;
  // A parked row failed again. $1 text: publication; $2 text: id; $3 text: error; $4 float8: as
  // above.
  std::string park_again;
};

// `log` and `parked` are quoted, qualified names. The lane takes the keys of `slice` out of
// `lanes`. `parked_blocks`: on_failure = 'park_key'.
LogOutboxSql MakeLogOutboxSql(const std::string& log, const std::string& parked, int slice,
                              int lanes, bool parked_blocks, bool typed);

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_LOG_LOG_OUTBOX_SQL_H_

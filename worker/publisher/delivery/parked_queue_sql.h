// The SQL of parked events that is the same for both kinds of outbox. Text only; parked_queue.cc
// runs it. The states of a parked row are told in parked_queue.h.
//
// Every statement goes through one index, whatever the statistics say: (key, seq) to the first row
// of a key, or the time of the next retry.
#ifndef POSTBOX_WORKER_PUBLISHER_DELIVERY_PARKED_QUEUE_SQL_H_
#define POSTBOX_WORKER_PUBLISHER_DELIVERY_PARKED_QUEUE_SQL_H_

#include <string>
#include <string_view>

namespace postbox::publisher {

// A row that waits behind the first one of its key.
inline constexpr std::string_view kBehind = "next_retry_at = 'infinity' AND publish_attempts = 0";

// How the rows of a queue stand in their table. `q` is a row in all of the texts.
struct ParkedQueueForm {
  std::string table;         // quoted and qualified
  std::string key;           // as text
  std::string aggregate_id;  // likewise; it says in which lane the row is
  // Which rows are of the publication, $1, and of the aggregate types that it takes, $2.
  std::string of;
  std::string order;             // of the index on keys, before seq
  std::string_view times;        // of the index on next_retry_at
  std::string_view behind_time;  // behind next_retry_at: 'infinity', as this index takes it
  // These begin with AND. What a row that was found by its place must be to be of the queue still;
  // and if it must be parked, and behind nothing, too. Which rows are of the lane.
  std::string_view still;
  std::string parked, slice;
  std::string_view lock;   // keeps a row in the queue until commit
  std::string_view freed;  // next_retry_at of a row that is not behind any more
  std::string free;        // at the end of a SET: takes away whatever lock token is there
};

struct ParkedQueueSql {
  // The first row of each key, from a key on. $3 text: from; $4 int: at most. Returns the key, seq,
  // ctid, whether the row is behind, and whether the key is one of the lane.
  std::string heads;
  // The first row of each of these keys: key, seq, ctid, whether it is behind. $3 text[]: keys; $4
  // bigint[]: of each a seq that is below its rows.
  std::string heads_of;
  // Keeps parked rows parked until commit. $1 tid[]. Returns their keys.
  std::string hold;
  // Rows that are behind are due, unless they are locked. $1 tid[]. Returns their keys.
  std::string make_due;
  // Rows are behind the first one of their key. $1 tid[].
  std::string put_behind;
  // Rows that are behind are not any more, where nothing stops a key. $3 int: at most.
  std::string free_behind;
};

ParkedQueueSql MakeParkedQueueSql(const ParkedQueueForm& form);

// Behind a SET: one more try has failed. $3 text: error, empty if it is only delayed;
// $4 float8: seconds until the next one, or
// infinity; $5 int: attempts that are counted.
std::string Retry();
// When the next try is. `seconds`: a parameter, as above.
std::string RetryAt(std::string_view seconds);

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_DELIVERY_PARKED_QUEUE_SQL_H_

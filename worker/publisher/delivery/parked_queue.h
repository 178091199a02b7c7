// Parked events, of both kinds of outbox: of a `table` they are rows of the outbox itself, of a
// `log` rows of <outbox>_parked. The columns that hold their state have the same names in both:
//
//   RETRY   publish_attempts > 0, next_retry_at finite: Pub/Sub has refused it, its time comes
//   FAILED  publish_attempts > 0, next_retry_at = infinity: max_attempts are used up
//   BEHIND  publish_attempts = 0, next_retry_at = infinity: waits behind an earlier one of its key
//   DUE     publish_attempts = 0, next_retry_at finite: redriven, or the first of its key now, or
//           no answer came for it alone, which is no attempt; or delayed: last_error is NULL then,
//           and next_retry_at is its deliver_at
//
// The key of an event is its aggregate id; that of one which its key may pass is made of its own id
// (LogKey() in extension/shared/outbox_columns.h), so nothing is before or behind it.
//
// A key is stuck at its first row. However many rows wait behind it, nothing reads them before it
// is their turn: they are reached through that row. When it is published or discarded, the next one
// is made DUE in the same transaction, and what is behind it goes with it.
//
// What must not happen is that a row is BEHIND when nothing is in front of it. So a row is put
// behind the first one only while that one is held: locked, so that it stays in the queue until
// commit. Whatever takes it out of the queue afterwards finds the next row. What an UPDATE or a
// DELETE of the owner's own has left is repaired in rounds over all keys (HeadsRound).
//
// All functions run in a transaction, as the owner of the outbox. Keys are in the encoding of the
// server.
#ifndef POSTBOX_WORKER_PUBLISHER_DELIVERY_PARKED_QUEUE_H_
#define POSTBOX_WORKER_PUBLISHER_DELIVERY_PARKED_QUEUE_H_

#include <limits>
#include <unordered_map>
#include <unordered_set>

#include "extension/base/statement.h"
#include "worker/publisher/delivery/parked_queue_sql.h"
#include "worker/publisher/store/publication.h"

namespace postbox::publisher {

// The first row of a key.
struct ParkedHead {
  std::string key;
  std::int64_t seq;
  ItemPointerData tid;
  bool behind;
};

class ParkedQueue {
 public:
  // `publication` must outlive the object.
  explicit ParkedQueue(const Publication& publication) : publication_(publication) {}

  // `table`: quoted and qualified.
  void Prepare(const ParkedQueueSql& sql, const std::string& table);

  // The first rows of `most` keys, those of other lanes among them, from key `from` on. `heads`:
  // those of the lane; `last`: the last key; `full`: there may be more.
  struct HeadsRead {
    std::vector<ParkedHead> heads;
    bool full;
    std::string last;
  };
  HeadsRead Heads(const std::string& from, int most);
  // In no order; of keys without a row, nothing. `before`: of each, a seq that is below its rows;
  // empty: that is not known. A row without a seq is not found.
  std::vector<ParkedHead> HeadsOf(const std::vector<std::string>& keys,
                                  std::vector<std::int64_t> before = {});
  // Keeps these in the queue until commit. Returns the keys of those that it could lock.
  std::unordered_set<std::string> Hold(const std::vector<ParkedHead>& heads);
  // Both: the keys whose first row is held, with its seq.
  std::unordered_map<std::string, std::int64_t> HoldHeadsOf(const std::vector<std::string>& keys,
                                                            std::vector<std::int64_t> before = {});

  // Those of these that are behind are due, unless they are locked: `left` has their keys. Returns
  // how many are.
  uint64 MakeDue(const std::vector<ParkedHead>& heads,
                 std::unordered_set<std::string>* left = nullptr);
  void PutBehind(const std::vector<ItemPointerData>& rows);
  // Frees rows that are behind. Returns whether there may be more than `most`.
  bool FreeBehind(std::size_t most);

 private:
  Datum Name() const { return TextValue(publication_.name); }
  Datum Types() const { return TextArrayValue(publication_.aggregate_types); }

  const Publication& publication_;
  std::string table_;
  struct {
    Statement heads, heads_of, hold, make_due, put_behind, free_behind;
  } statements_;
};

// A round over the first rows of all keys, some keys in a step.
class HeadsRound {
 public:
  bool running() const { return running_; }
  // The next step; the first one, if no round is running. If it fails, the next round begins at the
  // start.
  std::vector<ParkedHead> Next(ParkedQueue* queue, int most_keys);
  void Stop() { running_ = false; }

 private:
  bool running_ = false;
  std::string from_;  // the key at which it goes on
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_DELIVERY_PARKED_QUEUE_H_

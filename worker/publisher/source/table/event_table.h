// The table of a table outbox, as one worker reads and writes it: a function for each of its
// statements (table_outbox_sql.h), beside those that a log outbox has, too: queue(). What they mean
// is in table_outbox.h.
//
// All functions run in a transaction, after Open(), as the owner of the table. Keys are in the
// encoding of the server.
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_TABLE_EVENT_TABLE_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_TABLE_EVENT_TABLE_H_

#include <unordered_map>

#include "extension/base/statement.h"
#include "worker/publisher/delivery/parked_queue.h"
#include "worker/publisher/policy/event_retry.h"
#include "worker/publisher/source/event_rows.h"
#include "worker/publisher/source/table/claim_floor_logic.h"
#include "worker/publisher/source/table/claim_logic.h"
#include "worker/publisher/source/table/table_outbox_sql.h"
#include "worker/publisher/store/publication.h"

namespace postbox::publisher {

// Rows that may be claimed, in the order of seq.
struct Candidates {
  std::vector<Candidate> rows;
  std::vector<ItemPointerData> tids;                 // of each
  std::unordered_map<int64, std::size_t> too_large;  // seq -> size of the payload
  // Rows among them that others have leased.
  std::vector<int64> leased;
  std::vector<ItemPointerData> leases;
};

// A row with a lock token, or one that is marked as if it had one.
struct LeasedRow {
  ItemPointerData tid;
  int64 seq;
  std::optional<std::string> token;
  bool old;       // the time-out is over
  bool timeless;  // its time means nothing
};

class EventTable {
 public:
  // All of these must outlive the object.
  EventTable(const Publication& publication, const std::string& topic, const Ordering& ordering,
             const std::string& lock_token);

  // Locks the table against being dropped or altered for this transaction and returns its owner;
  // makes the statements again if it was renamed. InvalidOid if it was dropped: then there is
  // nothing to claim or to settle, and the configuration is about to say so. Before the rights of
  // the owner are taken.
  Oid Open();
  // Frees the plans. The next Open() makes the statements.
  void Forget();
  ParkedQueue& queue() { return queue_; }

  // What waits in ranges of seqs, `most` rows, without these keys. `cut`: there may be more.
  // `took`: the time of the statement.
  struct Read {
    Candidates candidates;
    bool cut;
    std::chrono::milliseconds took;
  };
  Read Waiting(const ClaimFloor::Ranges& ranges, std::size_t most,
               const std::vector<std::string>& without);
  // The first seq in these ranges that waits, of any type.
  std::optional<int64> NextWaiting(const ClaimFloor::Ranges& ranges);
  // Parked rows whose time has come, the longest due first.
  struct DueRows {
    Candidates first, rest;
  };
  DueRows Due(std::size_t most, std::size_t first);
  // What is behind the row of each key that has this seq, and behind nothing else.
  Candidates Followers(const std::unordered_map<std::string, int64>& last, std::size_t most,
                       std::size_t most_of_key);
  // The first row of each key behind this seq that is leased, or that a claim could take.
  struct OpenRow {
    std::string key;
    int64 seq;
    ItemPointerData tid;
    bool leased;
  };
  std::vector<OpenRow> FirstOpen(const std::unordered_map<std::string, int64>& after);
  // Locks rows of Waiting() and Due(), or of Followers(), without waiting for anyone. Returns where
  // those are that it could lock, by seq.
  std::unordered_map<int64, ItemPointerData> Lock(const std::vector<ItemPointerData>& rows);
  std::unordered_map<int64, ItemPointerData> LockBehind(const std::vector<ItemPointerData>& rows);

  // Leases locked rows, and appends the events. Returns their bytes.
  std::size_t Lease(const std::vector<ItemPointerData>& rows, Events* events);
  void ParkUnreadable(const ItemPointerData& row, const std::string& problem);

  // These change rows that are under this worker's lease still, and say how many were.
  // `places`: where each was leased.
  uint64 Confirm(const std::vector<std::string>& ids, const std::vector<ItemPointerData>& places);
  // Returns how many were ours; `expired` has those that were not published before.
  uint64 Expire(const std::vector<std::string>& ids, std::unordered_set<std::string>* expired);
  uint64 Release(const std::vector<std::string>& ids);
  uint64 ReleaseBehind(const std::vector<std::string>& ids);
  bool Park(const ClaimedEvent& event, const EventRetry& retry, const std::string& error);

  // Leases, among them `seen`. `timeout`: in seconds; `most`: of so many rows of each kind; `live`:
  // tokens of workers that live.
  std::vector<LeasedRow> Leases(const ClaimFloor::Ranges& ranges, double timeout, int most,
                                const std::vector<ItemPointerData>& seen,
                                const std::vector<std::string>& live);
  // Ends leases with these tokens, if the time-out is over or at any age. Returns how many.
  uint64 TakeOver(const std::vector<ItemPointerData>& rows, const std::vector<std::string>& tokens,
                  double timeout, bool at_any_age);
  // Whether any row is behind another one.
  bool AnyBehind() { return statements_.any_behind.Run({}) > 0; }

 private:
  void Prepare(const TableOutboxSql& sql);
  // The candidates in rows of SPI_tuptable, with their predecessors. `due`: they are of Due().
  Candidates ReadCandidates(uint64 begin, uint64 end, bool due) const;
  // The one in a row, without its predecessor.
  void AddCandidate(uint64 row, Candidates* candidates) const;
  std::unordered_map<int64, ItemPointerData> RunLock(Statement* lock,
                                                     const std::vector<ItemPointerData>& rows);

  const Publication& publication_;
  const std::string& topic_;
  const Ordering& ordering_;
  const std::string& lock_token_;
  std::string relation_;         // quoted and qualified, as the statements have it; empty: none
  std::size_t max_payload_ = 0;  // of a row that may be an event
  ParkedQueue queue_;
  struct {
    FilteredStatement waiting, due, followers, first_open;
    Statement next_waiting, lock, lock_behind, lease, park_unreadable;
    Statement confirm_at, confirm, expire, release, release_behind, park, park_seq;
    Statement leases, take_over, any_behind;
  } statements_;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_TABLE_EVENT_TABLE_H_

// The table outbox as a source of events: the state machine of a row, seen from the worker. (What
// SQL does to it: sql/install/functions/30_publication.sql.)
//
//   PENDING --Claim--> INFLIGHT --published--> PUBLISHED
//      ^  ^               |  \--not its fault (behind, broken topic, outage, leaving)--> as before,
//      |  |               |     but due if its time had come
//      |  |               |---unknown--------> DUE (after the base backoff; not counted)
//      |  |               |---rejected-------> RETRY (attempts + 1), after max_attempts FAILED
//      |  +--due----------+   (a due RETRY is claimed like PENDING)
//      BEHIND: parked behind a RETRY or FAILED row of its key, until that one is through
//
// What a claim may take, and why that keeps the order of a key, stands in claim_logic.h. The order
// never depends on BEHIND: it only keeps rows that cannot go out of the claim index, so that a
// stuck key with a deep backlog costs nothing.
//
// Such a backlog is reached through the first row of its key, and nobody touches more of it than a
// claim takes. A row that was parked has next_retry_at = -infinity while it is leased, so that no
// search for what is due passes it. One that has infinity there is parked, whatever lock token an
// application has written beside it. When the first row is published, the next one is made due in
// the same transaction; a claim that takes a row that is due also takes what is behind it, as much
// as there is room for. postbox.redrive makes the first row due, and postbox.discard the one after
// it.
//
// What must not happen is that a row is BEHIND when nothing is in front of it. So a row becomes
// BEHIND only while its key's first row is held parked by a row lock, in the same transaction;
// whoever gets that row through afterwards finds the next one. Repair() looks for what an UPDATE of
// somebody else's has left.
//
// A lease and its races. The lease of a row is lock_token and locked_at.
//   1. A claims: candidates are read, locked with SKIP LOCKED, judged, and marked with A's token. A
//      commits. Only then it publishes, with no transaction open.
//   2. A stops before it has stored the result. The token stays in the row. B reads the tokens that
//      stand in the table first, and asks which workers live afterwards: a worker that began in
//      between is alive by then. It takes over exactly the tokens that it read and that do not live
//      any more, so it never takes a claim that was made after it looked.
//   3. A lives, but its row is older than postbox.lease_timeout. B takes it over, too. When A comes
//      back, its UPDATE has its own token in the condition, finds no row, and says so in the log.
//      The event has been sent twice, under the same event id. What is not sent in a quarter of the
//      lease is given back, and postbox.publish_timeout is at most half of the lease, so in this
//      window A sends nothing any more. A itself takes over none that it has in hand, however old:
//      its result may be here, and wait for a lock on the table. An old one under its token that
//      it has not in hand it gives back: another session has written the token.
//   4. A's result is stored without waiting for the disk. If the server crashes before it is there,
//      the row is still leased, its worker is gone, and the event is sent again.
//
// Everything happens with the rights of the table's owner.
#ifndef POSTBOX_WORKER_PUBLISHER_TABLE_TABLE_OUTBOX_H_
#define POSTBOX_WORKER_PUBLISHER_TABLE_TABLE_OUTBOX_H_

#include "extension/base/guard.h"
#include "extension/base/statement.h"
#include "worker/publisher/base/event_log.h"
#include "worker/publisher/base/event_rows.h"
#include "worker/publisher/base/outbox_source.h"
#include "worker/publisher/base/publication.h"
#include "worker/publisher/base/sent_again.h"
#include "worker/publisher/table/claim_floor_logic.h"
#include "worker/publisher/table/claim_logic.h"
#include "worker/publisher/table/in_hand_logic.h"

namespace postbox::publisher {

class TableOutbox : public OutboxSource {
 public:
  // `topic` is the full name; `lock_token` this worker's.
  TableOutbox(Publication publication, std::string topic, std::string lock_token);

  ClaimResult Claim(const ClaimLimits& limits, Transaction* transaction) override;
  // Rows wait for the clock, and for sessions that have locked them.
  std::optional<ReadMark> ReadUpTo() const override { return std::nullopt; }
  void ForgetPlans() override { statements_.reset(); }
  bool Settle(std::span<const EventPointer> events, Transaction* transaction) override;
  // Takes over leases of workers that are gone; one worker of the database also repairs.
  void Maintain(bool leaving, Transaction* transaction) override;
  std::chrono::milliseconds MaintainIn() const override;
  void GiveUp(Transaction* transaction) override;
  // What failed may be about an altered table: the statements are made again.
  void RollBack(const std::string& /*error*/) override {
    sent_again_.RollBack();
    in_hand_.RollBack();
    relation_.clear();
    floor_.Clear();
    cursor_ = 0;
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Statements;
  // A row that is locked, to be claimed.
  struct Chosen {
    ItemPointerData tid;
    int64 seq;
    std::string key;
    std::size_t bytes;
    std::size_t too_large;  // the size of a payload that is larger than any message, or 0
  };
  struct Chunk;

  // What the last call has done is in the database.
  void BeginStep() {
    sent_again_.BeginStep();
    in_hand_.BeginStep();
  }
  // Locks the table against being dropped or altered for this transaction and returns its owner;
  // makes the statements again if it was renamed. InvalidOid if it was dropped: then there is
  // nothing to claim or to settle, and the configuration is about to say so.
  Oid Open();

  // Rows are locked and leased in one (sub)transaction. Were it two, their xmax would be a
  // multixact, and scans would pass their old index entries until a VACUUM. `one_by_one`: each row
  // is leased in a subtransaction of its own, since one of them cannot be read.
  ClaimResult ClaimAtOnce(const ClaimLimits& limits, bool one_by_one);
  // Takes what waits, some chunks of it: from the floor on, and then from the cursor on. Returns
  // whether it came to the end.
  bool Walk(const ClaimLimits& limits, ClaimSelection* selection, std::vector<Chosen>* chosen,
            bool* progress);
  // The walk has come to the end of this chunk, where it was `cut`: moves `at` there, and remembers
  // what others have leased. Returns the first row that waits, or up to where none does.
  std::optional<int64> Passed(const Chunk& chunk, bool cut, int64* at);
  // The first row behind this seq, of any type.
  std::optional<int64> NextWaiting(int64 seq) const;
  void TakeRetries(std::size_t limit, ClaimSelection* selection, std::vector<Chosen>* chosen,
                   bool* progress);
  Chunk ReadChunk(uint64 rows) const;
  // The candidate in a row of SPI_tuptable, without its predecessor.
  void AddCandidate(uint64 row, Chunk* chunk) const;
  // Judges, locks (with `lock`) and takes what is free.
  void TakeChunk(const Chunk& chunk, bool walk, Statement* lock, ClaimSelection* selection,
                 std::vector<Chosen>* chosen, bool* progress);
  // What is behind the rows that were chosen.
  void TakeFollowers(std::size_t limit, ClaimSelection* selection, std::vector<Chosen>* chosen,
                     bool* progress);
  Chunk ReadFollowers(uint64 rows, const std::unordered_map<std::string, int64>& last) const;
  std::vector<ItemPointerData> Heads(const std::set<std::string>& keys);
  bool Park(const std::vector<std::string>& keys, const std::vector<ItemPointerData>& rows);
  // In portions and in the order of seq, so that not all of it is in memory twice. What turns out
  // to be larger than the budget is left.
  Events Lease(std::vector<Chosen> chosen, std::size_t max_bytes, bool one_by_one);
  // The rows that are leased next, from `at` on.
  std::vector<Chosen> NextPortion(const std::vector<Chosen>& chosen, bool one_by_one,
                                  std::unordered_set<std::string>* stopped, std::size_t* at);
  // Returns the bytes of the events.
  std::size_t TakeLeased(const std::vector<ItemPointerData>& tids, Events* events);
  void ParkUnreadable(const Chosen& row, const std::string& reason);

  void Confirm(std::vector<const ClaimedEvent*> published);
  // What has failed and is not to blame. `parked_keys`: those with a row that was parked just now.
  void Release(std::vector<const ClaimedEvent*> events,
               std::unordered_set<std::string> parked_keys);
  // Returns whether the row was still ours; `failed`: its attempts are used up.
  bool ParkFailed(const ClaimedEvent& event, bool* failed);
  // Of these, `done` have been changed already.
  void Update(Statement* statement, const std::vector<std::string>& ids, uint64 done = 0);

  // Why a lease ends. kForgotten: it is our own, but we have not got the row. kNone: it is none.
  enum class Ending { kGone, kOld, kForgotten, kNone };
  static const char* Reason(Ending ending);
  struct Leases {
    std::vector<ItemPointerData> rows;
    std::set<std::string> tokens;
  };
  // `timeout`: in seconds.
  std::map<Ending, Leases> EndingLeases(Datum timeout);
  // Gives back what workers have leased that are gone, or that took too long.
  void TakeOverLeases();
  // Rows that are behind nothing are made due: an application's own UPDATE of the table may have
  // left them so. A round goes over all keys, some in a step.
  void Repair();
  void StoreSentAgain();
  Clock::time_point NextLookForLeases() const;
  Clock::time_point NextRepair() const;

  const Publication publication_;
  const std::string topic_;
  const std::string lock_token_;
  const Ordering ordering_;
  const bool blocks_;            // a parked row stops its key
  std::string relation_;         // quoted and qualified, as the statements have it
  std::size_t max_payload_ = 0;  // of a row that may be an event
  std::shared_ptr<Statements> statements_;
  int64 cursor_ = 0;      // where the walk over the backlog goes on; 0: it begins at the floor
  bool settled_ = false;  // results were stored since it began there
  ClaimFloor floor_;
  InHand in_hand_;
  std::vector<ItemPointerData> leases_;  // of others, that walks have passed since a look for them
  Clock::time_point leases_seen_at_{};
  Clock::time_point repaired_at_{};
  std::string repaired_upto_;     // the key at which the round goes on
  bool in_repair_round_ = false;  // it is not over
  bool free_behind_ = false;      // rows may be behind although nothing stops a key
  SentAgain sent_again_;
  EventLog log_;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_TABLE_TABLE_OUTBOX_H_

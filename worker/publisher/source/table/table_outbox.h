// The table outbox as a source of events: the state machine of a row, seen from the worker. (What
// SQL does to it: sql/install/functions/31_parked_events.sql.)
//
//   PENDING --Claim--> INFLIGHT --published--> PUBLISHED
//      ^  ^               |  \--not its fault (behind, broken topic, outage, leaving)--> as before,
//      |  |               |     but due if its time had come
//      |  |               |---unknown--------> DUE (after the base backoff; not counted)
//      |  |               |---rejected-------> RETRY (attempts + 1), after max_attempts FAILED
//      |  |               |---too early------> DUE (at its deliver_at; not counted)
//      |  |               |---too late-------> EXPIRED (published_at = -infinity)
//      |  +--due----------+   (a due RETRY is claimed like PENDING)
//      BEHIND: parked behind a RETRY or FAILED row of its key, until that one is through
//
// What a claim may take, and why that keeps the order of a key, stands in claim_logic.h. The order
// never depends on BEHIND: it only keeps rows that cannot go out of the claim index, so that a
// stuck key with a deep backlog costs nothing.
//
// How such rows wait behind the first one of their key, and go with it, is told in
// delivery/parked_queue.h. A row that was parked has next_retry_at = -infinity while it is leased,
// so that no search for what is due passes it. One that has infinity there is parked, whatever lock
// token an application has written beside it.
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
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_TABLE_TABLE_OUTBOX_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_TABLE_TABLE_OUTBOX_H_

#include "worker/publisher/delivery/event_log.h"
#include "worker/publisher/delivery/expired_events.h"
#include "worker/publisher/delivery/sent_again.h"
#include "worker/publisher/source/outbox_source.h"
#include "worker/publisher/source/table/claim_walk.h"
#include "worker/publisher/source/table/event_table.h"
#include "worker/publisher/source/table/in_hand_logic.h"
#include "worker/publisher/source/table/lease_takeover.h"

namespace postbox::publisher {

class TableOutbox : public OutboxSource {
 public:
  // `topic` is the full name; `lock_token` this worker's.
  TableOutbox(Publication publication, std::string topic, std::string lock_token);

  ClaimResult Claim(const ClaimLimits& limits, Transaction* transaction) override;
  // Rows wait for the clock, and for sessions that have locked them.
  std::optional<ReadMark> ReadUpTo() const override { return std::nullopt; }
  void ForgetPlans() override { table_.Forget(); }
  ClaimWay way() const override;
  bool Settle(std::span<const EventPointer> events, Transaction* transaction) override;
  // Takes over leases of workers that are gone; one worker of the database also repairs.
  void Maintain(bool leaving, Transaction* transaction) override;
  std::chrono::milliseconds MaintainIn() const override;
  void GiveUp(Transaction* transaction) override;
  // What failed may be about an altered table: the statements are made again.
  void RollBack(const std::string& error) override;

 private:
  using Clock = std::chrono::steady_clock;

  // What the last call has done is in the database.
  void BeginStep();

  // Rows are locked and leased in one (sub)transaction. Were it two, their xmax would be a
  // multixact, and scans would pass their old index entries until a VACUUM. `one_by_one`: each row
  // is leased in a separate subtransaction, since one of them cannot be read.
  ClaimResult ClaimAtOnce(const ClaimLimits& limits, bool one_by_one);
  // In portions and in the order of seq, so that not all of it is in memory twice. What turns out
  // to be larger than the budget is left.
  Events Lease(std::vector<ChosenRow> chosen, std::size_t max_bytes, bool one_by_one);
  // The rows that are leased next, from `at` on.
  std::vector<ChosenRow> NextPortion(const std::vector<ChosenRow>& chosen, bool one_by_one,
                                     std::unordered_set<std::string>* stopped, std::size_t* at);
  void ParkUnreadable(const ChosenRow& row, const std::string& reason);

  void SettleRows(std::span<const EventPointer> events);
  void Confirm(std::vector<const ClaimedEvent*> published);
  void Expire(const std::vector<const ClaimedEvent*>& expired);
  // What waits behind these, which are settled, goes on.
  void LetGoOn(const std::vector<const ClaimedEvent*>& settled);
  // What has failed and is not to blame. `parked_keys`: those with a row that was parked just now.
  void Release(std::vector<const ClaimedEvent*> events,
               std::unordered_set<std::string> parked_keys);
  // Whether the row was still ours.
  bool Park(const ClaimedEvent& event);
  bool Delay(const ClaimedEvent& event);
  // Says so if fewer rows than events were still under our lease.
  void CheckStored(uint64 rows, std::size_t events) const;

  // Rows that are behind nothing are made due: an application's own UPDATE of the table may have
  // left them so. A round goes over all keys, some in a step.
  void Repair();
  Clock::time_point NextRepair() const;
  void StoreSentAgain();

  const Publication publication_;
  const std::string topic_;
  const std::string lock_token_;
  const Ordering ordering_;
  const bool blocks_;  // a parked row stops its key
  EventTable table_;
  InHand in_hand_;
  ClaimWalk walk_;
  LeaseTakeover takeover_;
  HeadsRound repair_;
  Clock::time_point repaired_at_{};
  SentAgain sent_again_;
  ExpiredEvents expired_;
  EventLog log_;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_TABLE_TABLE_OUTBOX_H_

// The table outbox as a source of events: the state machine of sql/install/10_outbox.sql and
// sql/install/30_publication.sql, seen from the worker.
//
//   PENDING --Claim--> INFLIGHT --published--> PUBLISHED
//      ^  ^               |  \--not its fault (behind, topic broken, worker leaves)--> PENDING
//      |  |               |---unknown--------> RETRY (attempts + 1, due after the backoff; for ever)
//      |  |               |---rejected-------> RETRY, and after max_attempts FAILED
//      |  +--due----------+   (a due RETRY is claimed like PENDING)
//      +--BEHIND: parked behind a RETRY or FAILED row of its key, until that one is through
//
// What a claim may take, and why that keeps the order of a key, stands in claim_logic.h. The order
// never depends on BEHIND: it only keeps rows that cannot go out of the claim index, so that a
// stuck key with a deep backlog costs nothing. What must not happen is that a row stays BEHIND when
// nothing is in front of it any more. So a row becomes BEHIND only while its key's first row is
// held parked by a row lock, in the same transaction; who gets that row through afterwards finds
// all that were parked behind it.
//
// Everything happens with the rights of the table's owner.
#ifndef POSTBOX_WORKER_PUBLISHER_TABLE_TABLE_OUTBOX_H_
#define POSTBOX_WORKER_PUBLISHER_TABLE_TABLE_OUTBOX_H_

#include "extension/base/guard.h"
#include "extension/base/statement.h"
#include "worker/publisher/event_message.h"
#include "worker/publisher/outbox_source.h"
#include "worker/publisher/publication.h"
#include "worker/publisher/table/claim_logic.h"

namespace postbox::publisher {

class TableOutbox : public OutboxSource {
 public:
  // `topic` is the full name; `lock_token` this worker's.
  TableOutbox(Publication publication, std::string topic, std::string lock_token);

  ClaimResult Claim(const ClaimLimits& limits) override;
  void Settle(const Events& events) override;
  void TakeOver() override;
  void Mend() override;
  // Settle() stores everything.
  bool SettleInMemory(const Events&) override { return false; }
  void Checkpoint(bool) override {}
  std::optional<std::chrono::milliseconds> CheckpointIn() const override { return std::nullopt; }
  // What failed may be about an altered table: the statements are made anew.
  void Forget() override { relation_.clear(); }

 private:
  struct Statements;
  struct Chunk;

  // Locks the table against being dropped or altered for this transaction and returns its owner;
  // makes the statements anew if it was renamed. InvalidOid if it was dropped: then there is
  // nothing to claim or to settle, and the configuration is about to say so.
  Oid Open();

  void TakeRetries(std::size_t limit, ClaimSelection* selection,
                   std::vector<ItemPointerData>* chosen, bool* progress);
  Chunk ReadChunk(uint64 rows) const;
  void TakeChunk(const Chunk& chunk, bool walk, ClaimSelection* selection,
                 std::vector<ItemPointerData>* chosen, bool* progress);
  bool Park(const std::vector<std::string>& keys, const std::vector<ItemPointerData>& rows);
  Events Lease(const std::vector<ItemPointerData>& chosen);

  void Confirm(const std::vector<const ClaimedEvent*>& published);
  // Returns whether the row was still ours; `failed`: its attempts are used up.
  bool ParkFailed(const ClaimedEvent& event, bool* failed);
  void LogParked(const std::vector<const ClaimedEvent*>& parked, bool failed);
  void Update(Statement* statement, const std::vector<std::string>& ids);

  const Publication publication_;
  const std::string topic_;
  const std::string lock_token_;
  const Ordering ordering_;
  std::string relation_;  // quoted and qualified, as the statements have it
  std::shared_ptr<Statements> statements_;
  int64 cursor_ = 0;  // where the walk over the backlog goes on
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_TABLE_TABLE_OUTBOX_H_

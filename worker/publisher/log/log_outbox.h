// The log outbox as a source of events: one lane of a publication, read with a cursor that is a
// snapshot (log_position_logic.h). Publishing writes no row per event.
//
//   Claim    what failed before, in its order; parked events whose time has come; then what has
//            become visible since the last read, late rows first
//   Settle   published: nothing is written. Refused: moved aside into the parked table, and with it
//            what follows of its key. Unknown: tried again.
//   Checkpoint  at most every postbox.checkpoint_interval the position goes into the lane's row
//
// Invariants:
//  - WAL is flushed up to what a read made visible before an event is handed out: a crash cannot
//    un-commit a published event, synchronous_commit = off included.
//  - The position never passes an event that is neither published nor in the parked table, in the
//    same transaction or an earlier one. After a crash at most what was published since the last
//    checkpoint is sent again, in order.
//  - A key with a parked event is paused: later events of it go into the parked table too, until it
//    is empty for that key. Only the lane's owner reads and tries parked events; a person changes
//    them with postbox.redrive and postbox.discard.
//  - What is in memory is ahead of the database only by what Checkpoint() has yet to write. When a
//    transaction fails, Forget() drops all of it and the lane begins at its stored position again.
#ifndef POSTBOX_WORKER_PUBLISHER_LOG_LOG_OUTBOX_H_
#define POSTBOX_WORKER_PUBLISHER_LOG_LOG_OUTBOX_H_

#include "extension/base/guard.h"
#include "extension/base/statement.h"
#include "worker/publisher/event_message.h"
#include "worker/publisher/lane.h"
#include "worker/publisher/log/lane_progress_logic.h"
#include "worker/publisher/outbox_source.h"
#include "worker/publisher/publication.h"

namespace postbox::publisher {

// How many of a publication's lanes this worker has; shared by their sources. A worker takes its
// share and leaves the others to its siblings.
struct LaneShare {
  int held = 0;
};

class LogOutbox : public OutboxSource {
 public:
  LogOutbox(Publication publication, int slice, std::shared_ptr<LaneShare> share, std::string topic,
            std::string lock_token);
  ~LogOutbox() override;

  ClaimResult Claim(const ClaimLimits& limits) override;
  void Settle(const Events& events) override;
  bool SettleInMemory(const Events& events) override;
  void TakeOver() override {}
  void Mend() override;
  void Checkpoint(bool force) override;
  std::optional<std::chrono::milliseconds> CheckpointIn() const override;
  void Forget() override;

 private:
  struct Statements;
  struct LogRow;

  // Opens the log, checks that it is there, makes the statements if its name is new. Its owner.
  Oid Open();
  bool Acquire(ClaimResult* result);
  // How many of the publication's lanes each worker should have.
  int Share() const;
  LogMoment TakeMoment(int64 last_seq) const;
  void ReadLate(const LogMoment& moment, std::size_t limit);
  void ReadFresh(std::size_t limit);
  // Takes the rows of SPI_tuptable into the chunk that is being read.
  void TakeRows(uint64 rows);
  void ClaimChunk(const ClaimLimits& limits, ClaimResult* result);
  void ClaimFailed(ClaimResult* result);
  void ClaimParked(const ClaimLimits& limits, ClaimResult* result);
  static std::span<const LogRow> ViewRows(uint64 rows);
  EventPointer MakeEvent(const LogRow& row) const;
  bool Paused(const std::string& key) const;
  void LoadParkedKeys();

  void SettleParked(const ClaimedEvent& event, std::vector<std::string>* published);
  void Park(const ClaimedEvent& event);
  bool OthersWentThrough(const ClaimedEvent& event) const;
  double BackoffSeconds(int attempts, bool may_fail) const;

  const Publication publication_;
  const int slice_;
  const std::shared_ptr<LaneShare> share_;
  const std::string topic_;
  const Ordering ordering_;
  Lane lane_;
  std::string relation_;
  std::shared_ptr<Statements> statements_;

  std::optional<LaneProgress> progress_;  // empty: the lane is not ours
  LaneProgress::Handle next_handle_ = 1;  // handles of a forgotten progress are never given again
  LogPosition stored_;
  std::chrono::steady_clock::time_point stored_at_;
  // Events were read since the position was stored. (When none were, the stored one says the same
  // with older transaction ids, and an idle lane writes nothing.)
  bool dirty_ = false;

  // The chunk that is being read: events to hand out, in order, and their seqs.
  Events chunk_;
  std::vector<std::int64_t> chunk_seqs_;

  std::unordered_set<std::string> parked_keys_;         // keys with a row in the parked table
  std::unordered_set<std::string> parked_in_flight_;    // keys of which parked rows are outstanding
  std::chrono::steady_clock::time_point published_at_;  // when the last event went through
  // How often an event came back unknown while others went through.
  std::unordered_map<LaneProgress::Handle, int> unknown_;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_LOG_LOG_OUTBOX_H_

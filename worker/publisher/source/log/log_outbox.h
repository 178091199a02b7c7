// The log outbox as a source of events: one lane of a publication, read with a cursor that is a
// snapshot (log_position_logic.h). Publishing writes no row per event.
//
//   Claim     what failed before, in its order; parked events whose time has come; then what has
//             become visible since the last read, late rows first (backlog_logic.h)
//   Settle    published: nothing is written. Refused: moved aside into the parked table, and with
//             it what follows of its key (parked_events.h); likewise what was read before its
//             time. Expired: recorded (expired_events.h). Unknown: tried again.
//   Maintain  the position goes into the lane's row, at most every postbox.checkpoint_interval
//
// It puts together: whether the lane is ours (lane_ownership.h), what is in memory of it
// (log_lane.h), what is read of the log (log_reader.h), rows of other clusters (foreign_rows.h),
// and parked events.
//
// Invariants:
//  - WAL is flushed up to what a read made visible before an event is handed out: a crash cannot
//    un-commit a published event, synchronous_commit = off included.
//  - The position never passes an event that is neither published nor in the parked table, in the
//    same transaction or an earlier one. After a crash at most what was published since the last
//    checkpoint is sent again, in order.
//  - What is in memory is ahead of the database only by what the next checkpoint has yet to write.
//    When a transaction fails that has only read, or has only stored the position, RollBack() gives
//    back the events that it has handed out, and no event is sent again. When it has parked events,
//    or taken the lane, memory cannot tell what the database has: RollBack() drops all of it, and
//    the lane begins at its stored position again. The server's log says how many events that are.
//
// What a crash at each step leaves:
//
//                                  on disk                      in memory       after a restart
//   1. rows read                   old position                 chunk           read again
//   2. WAL flushed, handed over    old position                 outstanding     read and sent again
//   3. published, not settled      old position                 outstanding     sent again
//   4. settled                     old position                 new position    sent again
//   5. checkpoint committed        new position                 new position    nothing to do
//
// Steps 2 to 4 repeat at most what lies between two checkpoints, with the same event ids and in the
// same order. A refused event is copied into the parked table in the transaction of step 4. If the
// server stops before step 5, it is read again and found to be there already (ON CONFLICT DO
// NOTHING); its key is paused from the start, because the keys of the parked table are read with
// the lane.
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_LOG_OUTBOX_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_LOG_OUTBOX_H_

#include <unordered_map>

#include "worker/publisher/delivery/sent_again.h"
#include "worker/publisher/source/log/foreign_rows.h"
#include "worker/publisher/source/log/lane_ownership.h"
#include "worker/publisher/source/log/log_lane.h"
#include "worker/publisher/source/log/log_reader.h"
#include "worker/publisher/source/log/log_tables.h"
#include "worker/publisher/source/log/parked_events.h"
#include "worker/publisher/source/outbox_source.h"

namespace postbox::publisher {

class LogOutbox : public OutboxSource {
 public:
  LogOutbox(Publication publication, int slice, std::shared_ptr<LaneShare> share, std::string topic,
            std::string lock_token);

  ClaimResult Claim(const ClaimLimits& limits, Transaction* transaction) override;
  std::optional<ReadMark> ReadUpTo() const override;
  void ForgetPlans() override;
  // An event that was published needs no transaction.
  bool Settle(std::span<const EventPointer> events, Transaction* transaction) override;
  void Maintain(bool leaving, Transaction* transaction) override;
  std::chrono::milliseconds MaintainIn() const override;
  ClaimWay way() const override;
  void GiveUp(Transaction* transaction) override;
  void MarkLeaseUncertain() override { ownership_.MarkUncertain(); }
  // Its successor publishes from the stored position on, also what is outstanding here. Were this
  // one to park of that what the old topic refuses, it would stop keys that go on there.
  void Retire(const std::string& why) override { BeginAtStored(why); }
  void RollBack(const std::string& error) override;

 private:
  // A call begins: nothing of it has to be taken back.
  void BeginStep();
  // Checks the relations, and makes the statements if their names are new. Returns the owner.
  Oid Open();
  void Use(const LogOutboxSql& sql);

  // Takes the lane, or gives it up if the worker has more than its share. False: it is not ours.
  bool Acquire(ClaimResult* result);
  // False: there are rows of other clusters to settle, which comes first.
  bool SettleForeignRows(Oid owner_role, ClaimResult* result);
  // Drops what is in memory: the lane is not ours until it is taken, and begins at its stored
  // position. `why`: for the log, if events were handed out since. Empty: they are not sent again.
  // `unsent`: so many of them were not.
  void BeginAtStored(const std::string& why, std::size_t unsent = 0);
  void GiveUpRow(const std::string& why);

  void ClaimSome(const ClaimLimits& limits, ClaimResult* result);
  // Events that have been read before.
  void ClaimAgain(const std::vector<LaneProgress::Event>& wanted, ByteBudget* budget,
                  ClaimResult* result);
  void ClaimNew(const ClaimLimits& limits, ByteBudget* budget, ClaimResult* result);
  // Makes a part of the progress of a chunk, and hands out what may be published.
  void Take(LogChunk* chunk, LaneProgress::Part part, const LogMoment& moment, ClaimResult* result);

  void SettleUnpublished(std::span<const EventPointer> events);
  void ParkBehind(const std::vector<ParkedEvents::Waiting>& events);

  void Checkpoint();

  const Publication publication_;
  const std::string topic_;
  const Ordering ordering_;
  LaneOwnership ownership_;
  ForeignRows foreign_;
  SentAgain sent_again_;
  ParkedEvents parked_;
  LogReader reader_;
  LogTables tables_;
  std::string prepared_for_;  // the names that the statements were made with

  std::optional<LogLane> lane_;      // while it is ours
  LogLane::Handle next_handle_ = 1;  // handles of an earlier lane are never given again
  bool memory_is_ahead_ = false;     // the step has done what is as if it were stored
  Moment no_keys_until_ = 0;
  MaybeSent maybe_sent_;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_LOG_LOG_OUTBOX_H_

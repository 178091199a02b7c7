// The log outbox as a source of events: one lane of a publication, read with a cursor that is a
// snapshot (log_position_logic.h). Publishing writes no row per event.
//
//   Claim     what failed before, in its order; parked events whose time has come; then what has
//             become visible since the last read, late rows first. While that is a long backlog,
//             also what comes after it, of keys that have no event in the backlog
//   Settle    published: nothing is written. Refused: moved aside into the parked table, and with
//   it
//             what follows of its key (parked_events.h). Unknown: tried again.
//   Maintain  the position goes into the lane's row, at most every postbox.checkpoint_interval
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
#ifndef POSTBOX_WORKER_PUBLISHER_LOG_LOG_OUTBOX_H_
#define POSTBOX_WORKER_PUBLISHER_LOG_LOG_OUTBOX_H_

#include "worker/publisher/base/lane_table.h"
#include "worker/publisher/base/outbox_source.h"
#include "worker/publisher/base/sent_again.h"
#include "worker/publisher/log/lane_progress_logic.h"
#include "worker/publisher/log/log_reader.h"
#include "worker/publisher/log/parked_events.h"

namespace postbox::publisher {

// What the sources of a publication's lanes share in this worker: how many of the lanes it has (it
// takes its share and leaves the others to its siblings), their lines in the server's log, and the
// time that re-basing a restored log may take next. That reads the whole log, however large it is,
// and an owner's triggers run meanwhile: so it is not without a limit, and each try has more.
struct LaneShare {
  int held = 0;
  EventLog log;
  // What the next step of re-basing may take.
  static constexpr std::chrono::milliseconds kFirstRebaseTime = std::chrono::seconds(30);
  std::chrono::milliseconds rebase_time = kFirstRebaseTime;
  // When to look for rows of other clusters again, and how often such rows had been settled.
  std::chrono::steady_clock::time_point look_at;
  std::int64_t settled = 0;
};

class LogOutbox : public OutboxSource {
 public:
  LogOutbox(Publication publication, int slice, std::shared_ptr<LaneShare> share, std::string topic,
            std::string lock_token);
  ~LogOutbox() override;

  ClaimResult Claim(const ClaimLimits& limits, Transaction* transaction) override;
  std::optional<ReadMark> ReadUpTo() const override;
  void ForgetPlans() override;
  // An event that was published needs no transaction.
  bool Settle(std::span<const EventPointer> events, Transaction* transaction) override;
  void Maintain(bool leaving, Transaction* transaction) override;
  std::chrono::milliseconds MaintainIn() const override;
  bool KeepsRoom() const override { return !progress_ || !progress_->is_split(); }
  void GiveUp(Transaction* transaction) override;
  void MarkLeaseUncertain() override { lease_uncertain_ = true; }
  // Its successor publishes from the stored position on, also what is outstanding here. Were this
  // one to park of that what the old topic refuses, it would stop keys that go on there.
  void Retire(const std::string& why) override { BeginAtStored(why); }
  void RollBack(const std::string& error) override;

 private:
  using Clock = std::chrono::steady_clock;

  // Opens the log, checks that it is there, and makes the statements if its name is new. Returns
  // its owner.
  Oid Open();
  void Prepare(const std::string& parked);
  void Use(const LogOutboxSql& sql, const std::string& parked);

  // A call begins: nothing of it has to be taken back.
  void BeginStep();
  // Drops what is in memory: the lane is not ours until it is taken, and begins at its stored
  // position. `why`: for the log, if events were handed out since. Empty: they are not sent again.
  // `unsent`: so many of them were not.
  void BeginAtStored(const std::string& why, std::size_t unsent = 0);

  // Takes the lane, or gives it up if the worker has more than its share. False: it is not ours.
  bool Acquire(ClaimResult* result);
  // Whether the row says that this worker has the lane, though it has no progress here: it was
  // rolled back, or the publication was altered. No other takes it, so it is taken, even above
  // the share, and given up in order.
  bool IsLeftBehind();
  // A step of re-basing. Returns how many rows it has settled.
  int64 Rebase();
  // False: there are rows of other clusters to settle, which comes first.
  bool SettleForeignRows(Oid owner_role, ClaimResult* result);
  // How many of the publication's lanes each worker should have.
  int Share() const;

  // Events that have been read before.
  void ClaimAgain(const std::vector<LaneProgress::Event>& wanted, ByteBudget* budget,
                  ClaimResult* result);
  // While one full chunk follows another: where the lane is split if that lasts.
  struct Marker {
    std::int64_t seq;
    Clock::time_point since;
    FullXid long_transaction;  // of which the backlog is; 0: of many
  };
  // What a claim has read under one snapshot.
  struct Read {
    LogMoment moment;
    LogMoment main_moment;
    std::optional<LogChunk> main, ahead;
    bool more = false;  // keys of the backlog that are not known yet, or what had to stand back
  };
  void ClaimNew(const ClaimLimits& limits, ByteBudget* budget, ClaimResult* result);
  Read ReadNew(std::size_t limit, ByteBudget* budget);
  // Of a split lane: the next chunk of the backlog, and of what comes after it.
  void ReadBacklog(std::size_t limit, ByteBudget* budget, Read* read);
  // What others have committed late beside a long transaction. Whether there was any.
  bool ReadBeside(std::size_t limit, ByteBudget* budget, Read* read);
  void ReadAhead(std::size_t limit, ByteBudget* budget, Read* read);
  bool ReadsAhead() const;
  static bool BacklogIsRead(const Read& read);
  bool BacklogIsOver(const Read& read) const;
  // Whether the keys of the backlog are all known; reads some of them.
  bool KnowKeys(Read* read);
  // Hands out next what need not wait for the backlog any more; false if there is nothing.
  bool ReleaseSome(Read* read);
  // How many events of the backlog may be claimed now, so that there is room for others.
  std::size_t BacklogRoom(std::size_t limit) const;
  // Makes a part of the progress of a chunk, and hands out what may be published.
  void Take(LogChunk* chunk, LaneProgress::Part part, const LogMoment& moment, ClaimResult* result);
  void CountSentAgain(const ClaimResult& result);
  // Whether the backlog may have an earlier event of its key.
  bool MustWait(const ClaimedEvent& event) const;
  // Which events of a chunk are to be withheld.
  std::vector<bool> Withheld(const LogChunk& chunk, LaneProgress::Part part) const;
  // Splits the lane if it has a backlog; makes it one again when there is none any more.
  void SplitOrJoin(const Read& read, ClaimResult* result);
  void MarkBacklog(const Read& read);
  // Of the one that a lane has which has just read a full chunk. Not below its position.
  Marker MarkEnd(const LogMoment& moment);
  // The log may have been emptied, and its sequence begin again: then nothing that is in it was
  // read, and it is read from its beginning. False while it is empty, and nothing is read: the
  // position stays, since what was in it may come back with the same seqs, and of a backlog that
  // is not there now nothing is known to be over.
  bool CheckPosition(const LogMoment& moment);
  // Forgets the position, so that all that is in the log is read.
  void BeginAgain();
  [[noreturn]] void ThrowSetBack(int64 last_seq) const;

  static bool AllPublished(std::span<const EventPointer> events);
  // It was not the event's fault: the lane sends it again.
  static bool IsSentAgain(const ClaimedEvent& event);
  // Whether settling them may write to the table of parked events.
  static bool WritesParked(std::span<const EventPointer> events);
  // Whether all of them are known: they may be of what was rolled back.
  bool SettlePublished(std::span<const EventPointer> events);
  void SettleUnpublished(std::span<const EventPointer> events);
  void ParkBehind(const std::vector<ParkedEvents::Waiting>& events);

  // Of the first part nothing is on its way.
  bool BacklogIsSettled() const;
  bool PositionMoved() const;
  bool HasPassedOthers() const;
  void GiveUpRow(const std::string& why);
  std::chrono::milliseconds CheckpointIn() const;
  void Checkpoint();

  const Publication publication_;
  const int slice_;
  const std::shared_ptr<LaneShare> share_;
  const std::string topic_;
  const Ordering ordering_;
  LaneRow row_;
  SentAgain sent_again_;
  ParkedEvents parked_;
  LogReader reader_;
  Oid sequence_ = InvalidOid;
  std::string relation_name_;
  std::string prepared_for_;  // the names that the statements were made with
  Statement foreign_, any_read_;
  FilteredStatement again_;

  std::optional<LaneProgress> progress_;  // empty: the lane is not ours
  LaneProgress::Handle next_handle_ = 1;  // handles of an earlier progress are never given again
  // Of the last call: what it has handed out, the position that was stored before it, and whether
  // memory depends on its commit in another way.
  std::vector<LaneProgress::Handle> handed_out_;
  struct Stored {
    LanePosition position;
    LaneProgress::Handle next;
  };
  std::optional<Stored> stored_before_;
  bool depends_on_commit_ = false;
  // Of a split lane, since something came after the backlog.
  std::optional<KnownKeys> backlog_keys_;
  std::size_t backlog_bytes_ = 0;  // of an event of the backlog, on average
  bool ahead_first_ = false;       // the next claim reads nothing of the backlog
  bool reads_keys_ = false;
  Clock::time_point no_keys_until_;
  // The stored position is before events of the first part that have been handed out.
  bool backlog_unstored_ = false;
  // The next claim stores it, for only that keeps the parts from being joined.
  bool store_backlog_ = false;
  std::optional<Marker> marker_;
  // Of a split lane: what its marker said; 0 also if that is unknown.
  FullXid long_transaction_ = 0;
  LanePosition stored_;
  LaneProgress::Handle stored_next_ = 1;  // of the first event that is not behind it
  Clock::time_point stored_at_;
  Clock::time_point repaired_at_;
  std::int64_t settled_ = 0;    // share_->settled when this lane read the keys of its parked events
  bool reload_parked_ = false;  // the table has rows that were put there meanwhile
  bool parked_first_ = false;   // without a pause, keys would go on before them
  // Events were read since the position was stored. (When none were, the stored one says the same
  // with older transaction ids, and an idle lane writes nothing.)
  bool dirty_ = false;
  // The transactions of all events that were read are below this.
  FullXid read_below_ = 0;
  // Likewise those of other lanes' events that were passed since, without any of this lane.
  FullXid passed_below_ = 0;
  // The last value of the sequence as it was read, and a transaction id that was above those of all
  // rows up to it when it was read so for the first time.
  std::int64_t hwm_ = 0;
  FullXid drawn_below_ = 0;
  // Another worker had the lane, and may have sent events up to this seq that are not stored as
  // read. 0: it has not. kUpToNow: up to those that are there when the lane is read first.
  static constexpr std::int64_t kUpToNow = std::numeric_limits<std::int64_t>::max();
  std::int64_t maybe_sent_upto_ = 0;
  bool lease_uncertain_ = false;  // another worker may have taken the lane over
  bool maybe_left_ = true;        // see IsLeftBehind()
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_LOG_LOG_OUTBOX_H_

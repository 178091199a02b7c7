// One lane as this worker sees it: claims its events, stores their results, and waits after a
// failure.
//
// A failure is one of these:
//  - The topic is broken: the results say so. Settle() suspends the publication in postbox.lane,
//    for all workers. It is tried again soon, 30 s later at most, with one event and so with one
//    request (a probe), whatever waits.
//  - Nothing goes through: likewise, but for 1 s at most. The first event that goes through ends
//    any suspension for all lanes. What is said of it: outage.h.
//  - The topic refuses every event of a batch as invalid, and none has gone through before: then
//    the topic is to blame (a schema that is attached to it, say) and not each event. That is a
//    broken topic, too. But when that has lasted for as long as max_attempts tries of an event
//    would, a batch is settled event by event, and the next one is tried at once, so that refused
//    events at the front cannot hold up the others for ever.
//  - A probe of a topic that was broken otherwise is refused as invalid. That may be the event's
//    own fault: a batch is tried at once, and tells.
//  - A statement on the outbox failed: the table was altered, a trigger raised an error or took too
//    long. The publication is suspended in the same way, with a backoff of the worker's own, and
//    what the step did to the source is taken back.
//  - The outbox is locked, or something else that passes (base/passing_error.h). The lane tries
//    again soon, and if that lasts, the publication is suspended with the reason.
//
// Invariants:
//  - Results that could not be stored stay here and are tried again; until then the lane claims
//    nothing. They count towards the budget (budget.h). If it took too long, fewer are stored in
//    one transaction.
//  - An error of one lane concerns its publication and no other.
//  - A step that takes long is followed by a pause that is longer by kPauseFactor, if there are
//    other publications. So what the owner of one outbox does to it costs them a tenth of the
//    worker's time, and a step that does not end by itself is ended (step_limit.h). A slow step
//    every now and then is forgiven (kGrace): disks and processors have hiccups.
//  - After a step that took longer than the events that it publishes need (it parks events, or
//    looks in vain) the lane rests kPauseFactor times as long while others publish.
#ifndef POSTBOX_WORKER_PUBLISHER_LANE_H_
#define POSTBOX_WORKER_PUBLISHER_LANE_H_

#include "worker/publisher/base/outbox_source.h"
#include "worker/publisher/base/publication.h"
#include "worker/publisher/budget.h"

namespace postbox::publisher {

class Lane {
 public:
  // `topic` is the full name. `trouble`: why nothing can be published at all, or empty.
  Lane(Publication publication, std::string topic, std::string trouble,
       std::unique_ptr<OutboxSource> source, std::shared_ptr<Holding> holding);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  const std::string& publication_name() const { return publication_.name; }
  const std::string& credential() const { return publication_.credential; }
  Oid outbox() const { return publication_.outbox; }
  const std::string& topic() const { return topic_; }
  const std::string& trouble() const { return trouble_; }
  // Events wait for an answer of the topic, or for another try.
  bool WaitsForAnswer() const { return holding_->events > 0 || retry_at_ != 0; }
  // What the lanes of the publication hold of the budget.
  const std::shared_ptr<Holding>& holding() const { return holding_; }
  bool IsOfSamePublication(const Lane& other) const { return holding_ == other.holding_; }
  // Whether other publications wait for this worker.
  void SetCrowded(bool crowded) { crowded_ = crowded; }
  bool IsOf(const Publication& publication, std::string_view topic) const {
    return publication_ == publication && topic_ == topic;
  }

  // Whether it is of this publication as it was before it was altered.
  bool IsBefore(const Publication& publication) const {
    return publication_.name == publication.name && publication_.outbox == publication.outbox &&
           publication_.created_at == publication.created_at;
  }

  // There may be something to claim.
  void Want() { wanted_ = true; }
  // As OutboxSource::ReadUpTo(). Nothing for a lane that waits for something else, too.
  std::optional<ReadMark> ReadUpTo() const {
    return attempts_ > 0 || retry_at_ != 0 || needed_ > 0 ? std::nullopt : source_->ReadUpTo();
  }
  bool has_plans() const { return has_plans_; }
  // Of a lane that has plans, and is read to its end: when it had its last event.
  std::optional<TimestampTz> StillSince() const {
    return has_plans_ && ReadUpTo() ? std::optional(event_at_) : std::nullopt;
  }
  void FreePlans();
  // The same, and the suspension that this worker remembers is over: somebody may have ended it.
  void WantNow();

  bool WantsToClaim(TimestampTz now) const { return wanted_ && ClaimAt() <= now && !HasResults(); }
  // It should not claim unless no other publication gets anything through.
  bool Rests(TimestampTz now) const { return rest_until_ > now; }
  // Claims as much as there is room for, in a transaction. Returns whether there may be more to do
  // at once. The caller adds the events to the budget, and makes the lane their owner.
  // `durable_at`: the position in WAL that makes them durable.
  bool Claim(TimestampTz now, const Budget& budget, Events* events, XLogRecPtr* durable_at);

  // Takes an event that has its result. `leaving`: the worker is about to go, or the identity with
  // which it was sent is not used any more. So the result says nothing of the topic.
  void AddResult(EventPointer event, bool leaving) {
    event->leaving = leaving || finish_by_ != 0;
    --outstanding_;
    unsettled_.push_back(std::move(event));
  }
  bool HasResults() const { return !unsettled_.empty() || !settling_.empty(); }
  // Stores results, if it is time to (or `leaving`), and frees their room: many of them in parts.
  enum class Settled { kNothing, kPart, kAll };
  Settled Settle(TimestampTz now, bool leaving, Budget* budget);

  // The publication was altered: the lane claims nothing more. When what is on its way has its
  // results, and they are stored, its successor begins: so nothing is sent again. Failures do not
  // count: the successor tries again. It waits for kFinishTime at most; one with another identity
  // has another client, and waits for as long as a result may take, so that nothing arrives behind
  // what the successor sends.
  void Finish(TimestampTz now, const Publication& successor);
  // Whether it has its results, or has waited for them for long enough.
  bool IsFinished(TimestampTz now) const {
    return (outstanding_ == 0 && !HasResults()) || finish_by_ <= now;
  }
  TimestampTz finish_by() const { return finish_by_; }
  // Stores how far it is, and lets others have the lane if `give_up`.
  void Conclude(TimestampTz now, bool give_up);
  // The publication is gone, or its successor begins: what is still on its way gets its results.
  // The events of a log are claimed by the successor, too, from the stored position on: so what
  // becomes of them here is of no account.
  void Retire(const std::string& why) { source_->Retire(why); }
  // The worker was away for so long that others may have its lanes.
  void Doubt() { source_->Doubt(); }
  // Does what is due by the clock; when leaving, also what would be due later.
  void Maintain(TimestampTz now, bool leaving);

  // The worker cannot publish this lane now: suspends the publication with `error`.
  void Fail(TimestampTz now, const std::string& error);
  // The same for an outbox whose code has ended an earlier worker.
  void FailSuspect(TimestampTz now);

  // When Maintain() has something to do, or a suspension is over.
  TimestampTz NextWork(TimestampTz now) const;
  // When results that could not be stored are tried again.
  TimestampTz settle_at() const {
    return waits_for_rest_ ? DT_NOEND : std::max(settle_at_, PauseUntil());
  }

 private:
  // When there is nobody to hold up it does not pause. Others may come at any time.
  TimestampTz PauseUntil() const { return crowded_ ? pause_until_ : 0; }
  TimestampTz ClaimAt() const {
    const TimestampTz at = std::max(retry_at_, PauseUntil());
    const bool free = proven_ && attempts_ == 0;
    return free || outstanding_ == 0 ? at : std::max(at, next_unproven_);
  }
  // So many results are stored in one transaction at most.
  static constexpr std::size_t kMostSettled = 2000;
  // What the results of a settlement say about the publication.
  struct Summary {
    std::string broken;       // why nothing can be published; empty if something can
    bool outage = false;      // nobody answers; else the topic is broken
    bool refusing = false;    // the topic refuses everything
    std::size_t refused = 0;  // by the topic, for the first time
    std::size_t published = 0;
    bool settled_each = false;  // a batch that was refused throughout, event by event
    bool undecided = false;  // a probe was refused: nobody knows yet whether the topic is to blame
    bool lost = false;       // the source was rolled back, and knows some of the events no more
  };
  Summary Summarize() const;
  // How many events are claimed of a publication that was suspended at `now`.
  std::size_t ProbeSize(TimestampTz now) const;
  // Whether what is refused with all others is settled event by event now.
  bool SettlesEach(TimestampTz now) const;
  bool IsUndecided(const Summary& summary) const;
  // Makes results that say that everything is refused into those of a broken topic.
  void BlameTopic(TimestampTz now, Summary* summary);
  // Of those that were refused nothing is known: they are given back.
  void GiveBackRefused();
  pubsub::BackoffPolicy TopicBackoff() const;
  bool RefusedThroughout(const Summary& summary) const;
  void Remember(TimestampTz now, const Summary& summary);
  // Begins a settlement: says what the results mean that are there. False if it has to wait for the
  // others.
  bool Decide(TimestampTz now, bool leaving);
  // The transaction of a part of it, if it needs one. False if it failed. With the last part it
  // clears Summary::broken if that suspends nothing.
  bool Store(TimestampTz now, std::span<const EventPointer> part, bool leaving);

  // A part of a settlement that began at `begin` is stored. If storing has lasted for a quarter of
  // a lease, the pause that follows is not longer than that took, so that leases do not end
  // meanwhile. What lasts for three quarters cannot be saved, and has all its pauses.
  void HurryUp(TimestampTz begin);

  std::chrono::milliseconds StepTime(int too_long) const;
  std::size_t BatchSize() const;
  // Locks the outbox for the transaction unless somebody has locked it otherwise.
  bool TryLock() const;
  // Somebody is in the way (base/passing_error.h), for this reason.
  void Passing(TimestampTz now, const std::string& reason);
  // `too_long`: the counter of such steps.
  void FailStatement(TimestampTz now, const PostgresError& error, int* too_long);
  // A statement of a step that stores no results.
  void Fail(TimestampTz now, const PostgresError& error);
  void SuspendWith(TimestampTz now, const std::string& error, const pubsub::BackoffPolicy& backoff);
  // A step that began at `begin` is over. It claimed so many events or stored that they are
  // published. If it took more than `free` beyond what they need, a rest follows. Returns whether a
  // pause follows.
  bool Charge(TimestampTz begin, std::size_t events, std::chrono::milliseconds free);
  void ChargeClaim(TimestampTz begin, std::size_t events);
  // The same for one that failed. Nothing is forgiven.
  void ChargeFailure(TimestampTz begin);
  // Pauses for a step that took so much too long; false if it did not.
  bool PauseFor(TimestampTz now, std::chrono::milliseconds over);
  // What is left of a delay when what is forgiven at `now` is subtracted.
  std::chrono::milliseconds Forgive(TimestampTz now, std::chrono::milliseconds delay);
  void Log(const std::string& error);

  const Publication publication_;
  const std::string topic_;
  const std::string trouble_;
  const std::unique_ptr<OutboxSource> source_;
  const std::shared_ptr<Holding> holding_;

  bool wanted_ = true;
  int attempts_ = 0;  // failures in a row, as in postbox.lane
  TimestampTz retry_at_ = 0;
  TimestampTz suspended_since_ = 0;  // as in postbox.lane
  // What the last result of a suspended publication says about the next try. kOne: it is a probe.
  // kBatch: a probe was refused. kRefusing: the topic refuses everything, and is probed until a
  // batch is due.
  enum class Try { kOne, kBatch, kRefusing } try_ = Try::kOne;
  bool failed_ = false;  // suspended because of a statement, not of the topic
  // Steps in a row that were cancelled: those that store results, and others.
  int settled_too_long_ = 0;
  int too_long_ = 0;

  // Whether an event has gone through lately. Until then there is one small batch at a time, and
  // what is refused waits for the results of the others. But a batch that has no results yet does
  // not keep the next one back for long: perhaps it is the only one that gets no answer.
  bool proven_ = false;
  TimestampTz next_unproven_ = 0;
  std::size_t refused_in_row_ = 0;
  std::size_t outstanding_ = 0;  // claimed, no result yet
  std::size_t needed_ = 0;       // so much room the next event needs; 0: as is not known
  bool waits_for_rest_ = false;

  bool crowded_ = false;
  TimestampTz pause_until_ = 0;
  TimestampTz long_step_at_ = 0;  // the end of the last one that was followed by a pause
  TimestampTz rest_until_ = 0;
  std::chrono::milliseconds grace_{0};  // as it was at grace_at_
  TimestampTz grace_at_ = 0;
  std::size_t batch_size_ = std::numeric_limits<std::size_t>::max();  // less while claims are slow
  TimestampTz passing_since_ = 0;  // 0: the last step did not fail so

  TimestampTz event_at_ = 0;  // of the last claim that found one
  bool has_plans_ = false;

  TimestampTz finish_by_ = 0;  // of Finish(); 0: it claims

  Events unsettled_;
  // What is being stored in parts, and what it says, as of the beginning.
  Events settling_;
  Summary settling_says_;
  std::size_t settle_size_ = kMostSettled;  // of a part; less while that takes long
  TimestampTz settling_since_ = 0;
  TimestampTz settle_at_ = 0;
  int settle_failures_ = 0;
};
using LanePointer = std::shared_ptr<Lane>;

// The lanes of a publication.
std::vector<LanePointer> MakeLanes(const Publication& publication, const std::string& topic);

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_LANE_H_

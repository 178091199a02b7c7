// The results of a lane's events: collects them, asks what they say of the topic, and stores them.
//
// Many results are stored in parts. What they say of the topic is decided once, from all that are
// there when the first part is stored, and takes effect with the last part. Results that could not
// be stored stay here and are tried again, fewer in one transaction if it took too long. Until then
// they count towards the budget (budget.h), and the lane claims nothing.
#ifndef POSTBOX_WORKER_PUBLISHER_LANE_RESULTS_H_
#define POSTBOX_WORKER_PUBLISHER_LANE_RESULTS_H_

#include "worker/publisher/budget.h"
#include "worker/publisher/lane_failures.h"
#include "worker/publisher/policy/adaptive_size.h"
#include "worker/publisher/source/outbox_source.h"

namespace postbox::publisher {

class LaneResults {
 public:
  // All live as long.
  LaneResults(const Publication* publication, OutboxSource* source, LaneFailures* failures,
              std::shared_ptr<Tenant> tenant)
      : publication_(publication),
        source_(source),
        failures_(failures),
        tenant_(std::move(tenant)) {}

  // So many events were claimed, and have no result yet.
  void Expect(std::size_t events) { outstanding_ += events; }
  std::size_t outstanding() const { return outstanding_; }
  // Takes an event that has its result. `leaving`: the worker is about to go, or the identity with
  // which it was sent is not used any more. So the result says nothing of the topic.
  void Add(EventPointer event, bool leaving);
  bool HasResults() const { return !collected_.empty() || InParts(); }
  // Some of the results may be stored, and others not yet.
  bool InParts() const { return !settling_.empty(); }

  // No more events are claimed: results are stored at once until `by`, and failures do not count.
  void Finish(Moment by) { finish_by_ = finish_by_ == 0 ? by : finish_by_; }
  // Whether all results are stored, or were waited for for long enough.
  bool IsFinished(Moment now) const {
    return (outstanding_ == 0 && !HasResults()) || finish_by_ <= now;
  }
  Moment finish_by() const { return finish_by_; }

  enum class Progress { kNothing, kPart, kAll };
  // Stores a part of the results, if it is time to (or `leaving`), and frees its room. `leaving`: a
  // failure does not count.
  Progress Step(Moment now, bool leaving, Budget* budget);
  // When results are stored that had to wait.
  Moment NextStep() const {
    return finish_by_ != 0 ? step_at_ : std::max(step_at_, tenant_->WaitsUntil());
  }
  // Refused events wait for the results of the others.
  bool WaitsForRest() const { return waits_for_rest_; }

 private:
  // So many results are stored in one transaction at most.
  static constexpr std::size_t kMostStored = 2000;

  struct Judgement {
    SuspensionPolicy::Results results;
    SuspensionPolicy::Verdict verdict = SuspensionPolicy::Verdict::kNone;
    std::string error;  // why the publication is suspended
    bool lost = false;  // the source was rolled back, and knows some of the events no more
  };
  Judgement Summarize() const;
  // Begins to settle what was collected. False if that has to wait for the other results.
  bool Judge(Moment now, bool leaving);
  // Nothing is known of the refused events. Returns what was said of the first one.
  std::string GiveBackRefused();
  // The transaction of a part, if it needs one. False if it failed.
  bool Store(Moment now, std::span<const EventPointer> part, bool leaving);
  // With the last part: stores what the results say of the topic.
  struct Effect {
    Moment suspended_until = 0;  // 0: it is not
    bool recovered = false;
  };
  Effect StoreVerdict(bool leaving, Transaction* transaction) const;
  void FailedToStore(Moment now, std::size_t part, const PostgresError& error, bool leaving);
  // Storing that has lasted for a quarter of a lease has no pause longer than the turn that began
  // at `begin`, so that leases do not end meanwhile. What lasts for three quarters cannot be saved,
  // and has all its pauses.
  void CapPauseToLease(Moment begin);

  const Publication* const publication_;
  OutboxSource* const source_;
  LaneFailures* const failures_;
  const std::shared_ptr<Tenant> tenant_;

  Moment finish_by_ = 0;  // 0: events are claimed
  std::size_t outstanding_ = 0;
  Events collected_;
  bool waits_for_rest_ = false;  // of the results
  Events settling_;
  Judgement judgement_;  // of settling_
  Moment settling_since_ = 0;
  AdaptiveSize size_{1, kMostStored};
  TurnLimit limit_;
  int failures_in_row_ = 0;
  Moment step_at_ = 0;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_LANE_RESULTS_H_

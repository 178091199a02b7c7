// One lane as this worker sees it: claims its events, and waits after a failure. Its LaneResults
// stores their results, its LaneFailures suspend the publication.
//
// Invariants:
//  - While results wait to be stored, the lane claims nothing.
//  - An error of one lane concerns its publication and no other: what the step did to the source is
//    taken back.
//  - A turn of a lane costs the other publications a tenth of the worker's time at most
//    (policy/turn_account.h), and one that does not end by itself is ended (base/step_limit.h).
#ifndef POSTBOX_WORKER_PUBLISHER_LANE_H_
#define POSTBOX_WORKER_PUBLISHER_LANE_H_

#include "worker/publisher/budget.h"
#include "worker/publisher/lane_failures.h"
#include "worker/publisher/lane_results.h"
#include "worker/publisher/policy/adaptive_size.h"
#include "worker/publisher/publication_meter.h"
#include "worker/publisher/source/outbox_source.h"
#include "worker/publisher/store/publication.h"

namespace postbox::publisher {

class Lane {
 public:
  // `topic` is the full name. `configuration_error`: why nothing can be published at all, or empty.
  Lane(Publication publication, std::string topic, std::string configuration_error,
       std::unique_ptr<OutboxSource> source, std::shared_ptr<Tenant> tenant);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  const Publication& publication() const { return publication_; }
  const std::string& topic() const { return topic_; }
  const std::string& configuration_error() const { return configuration_error_; }
  const std::shared_ptr<Tenant>& tenant() const { return tenant_; }
  LaneFailures& failures() { return failures_; }
  LaneResults& results() { return results_; }
  // Events wait for an answer of the topic, or for another try.
  bool WaitsForAnswer() const { return tenant_->events > 0 || failures_.topic().retry_at() != 0; }

  // There may be something to claim.
  void MarkReady() { ready_ = true; }
  // The same, and the suspension that this worker remembers may have been ended.
  void ClearBackoff();
  // As OutboxSource::ReadUpTo(). Nothing for a lane that waits for something else, too.
  std::optional<ReadMark> ReadUpTo() const;
  bool has_plans() const { return has_plans_; }
  // Of a lane that has plans, and is read to its end: when it had its last event.
  std::optional<Moment> StillSince() const {
    return has_plans_ && ReadUpTo() ? std::optional(event_at_) : std::nullopt;
  }
  void FreePlans();

  bool WantsToClaim(Moment now) const {
    return IsReady() && ClaimAt() <= now && !results_.HasResults();
  }
  // Claims as much as there is room for, in a transaction. Returns whether there may be more to do
  // at once. The caller adds the events to the budget, and makes the lane their owner.
  // `durable_at`: the position in WAL that makes them durable.
  bool Claim(Moment now, const Budget& budget, Events* events, XLogRecPtr* durable_at);

  // The publication was altered: the lane claims nothing more. When what is on its way has its
  // results, and they are stored, its successor begins: so nothing is sent again. Failures do not
  // count: the successor tries again. It waits for kFinishTime at most; one with another identity
  // has another client, and waits for as long as a result may take, so that nothing arrives behind
  // what the successor sends.
  void Finish(Moment now, const Publication& successor);
  // Stores how far it is, and lets others have the lane if `give_up`.
  void Conclude(Moment now, bool give_up);
  // The publication is gone, or its successor begins: what is still on its way gets its results.
  // The events of a log are claimed by the successor, too, from the stored position on: so what
  // becomes of them here is of no account.
  void Retire(const std::string& why) { source_->Retire(why); }
  // The worker was away for so long that others may have its lanes.
  void MarkLeaseUncertain() { source_->MarkLeaseUncertain(); }
  // Does what is due by the clock; when leaving, also what would be due later.
  void Maintain(Moment now, bool leaving);

  // When Maintain() has something to do, or a suspension is over.
  Moment NextWork(Moment now) const;

 private:
  // A lane that failed tries again.
  bool IsReady() const { return ready_ || failures_.topic().retry_at() != 0; }
  Moment ClaimAt() const {
    return std::max(failures_.topic().ClaimAt(results_.outstanding()), tenant_->WaitsUntil());
  }
  std::size_t BatchSize() const;
  // What a claim found.
  struct Claimed {
    bool suspended = false;
    bool locked = false;  // another session has locked the outbox
    ClaimResult result;
  };
  // The transaction of a claim. Nothing if it failed.
  std::optional<Claimed> ReadEvents(Moment now, ClaimLimits limits);

  const Publication publication_;
  const std::string topic_;
  const std::string configuration_error_;
  const std::unique_ptr<OutboxSource> source_;
  const std::shared_ptr<Tenant> tenant_;
  LaneFailures failures_;
  LaneResults results_;
  PublicationMeter meter_;

  AdaptiveSize claim_size_;
  TurnLimit limit_;  // of turns that store no results
  bool ready_ = true;
  std::size_t needed_ = 0;  // so much room the next event needs; 0: that is not known
  Moment event_at_ = 0;     // of the last claim that found one
  bool has_plans_ = false;
};
using LanePointer = std::shared_ptr<Lane>;

// The lanes of a publication.
std::vector<LanePointer> MakeLanes(const Publication& publication, const std::string& topic);

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_LANE_H_

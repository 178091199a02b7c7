// What a failure of a lane suspends: the publication, for all workers (store/publication_state.h).
//
//  - What the results say of the topic: policy/suspension_policy.h.
//  - A statement on the outbox failed: the table was altered, a trigger raised an error or took too
//    long. The publication is suspended with a backoff of the worker's own.
//  - The outbox is locked, or something else is in the way that passes (base/passing_error.h). The
//    lane tries again soon. If that lasts, the publication is suspended with the reason.
//  - The worker cannot publish at all with this identity or to this topic.
#ifndef POSTBOX_WORKER_PUBLISHER_LANE_FAILURES_H_
#define POSTBOX_WORKER_PUBLISHER_LANE_FAILURES_H_

#include "extension/base/guard.h"
#include "worker/publisher/policy/suspension_policy.h"
#include "worker/publisher/store/publication.h"
#include "worker/publisher/tenant.h"

namespace postbox::publisher {

// While statements on the outbox fail, and while it is locked, when an attempt costs next to
// nothing. Not scaled.
inline constexpr pubsub::BackoffPolicy kErrorBackoff{std::chrono::seconds(1), 2.0,
                                                     std::chrono::seconds(30)};
inline constexpr pubsub::BackoffPolicy kLockBackoff{std::chrono::milliseconds(500), 1.5,
                                                    std::chrono::seconds(5)};

// For the log and postbox.publication_status: what is wrong, and the repair.
std::string Reason(const PostgresError& error);

class LaneFailures {
 public:
  // `publication` lives as long.
  LaneFailures(const Publication* publication, std::shared_ptr<Tenant> tenant)
      : publication_(publication),
        tenant_(std::move(tenant)),
        topic_(publication->max_attempts, publication->backoff) {}

  // What is known of the topic.
  SuspensionPolicy& topic() { return topic_; }
  const SuspensionPolicy& topic() const { return topic_; }

  // A statement that stores results failed. `limit`: that of its turn.
  void FailStatement(Moment now, const PostgresError& error, TurnLimit* limit);
  // Another one failed: no turn of its kind is tried while the publication is suspended for it.
  void FailTurn(Moment now, const PostgresError& error, TurnLimit* limit);
  bool StatementFailed(Moment now) const { return statement_failed_ && topic_.retry_at() > now; }
  // Something is in the way, for this reason.
  void Pass(Moment now, const std::string& reason);
  // Nothing is in the way any more.
  void EndPassing() { passing_since_ = 0; }
  // A claim was made.
  void Recover();
  // The publication cannot be published now.
  void Suspend(Moment now, const std::string& error,
               const pubsub::BackoffPolicy& backoff = kErrorBackoff);
  // The code of the outbox has ended an earlier worker.
  void SuspendSuspect(Moment now);
  // The log says that the publication is suspended.
  void Log(const std::string& error) const;

 private:
  void LogCutOff(const std::string& error) const;
  const Publication* const publication_;
  const std::shared_ptr<Tenant> tenant_;
  SuspensionPolicy topic_;
  bool statement_failed_ = false;  // that is why it is suspended
  Moment passing_since_ = 0;       // 0: the last turn did not fail so
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_LANE_FAILURES_H_

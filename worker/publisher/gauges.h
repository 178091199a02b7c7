// Measures the gauges of postbox.metrics: what waits, what is parked, which state a publication
// has, and how far retention is behind. One worker of a database does it (the one with ordinal 0).
//
// A round begins every kRound, and measures one object at a time, in a transaction that costs the
// same at any backlog. A step measures as many as take little time together. After it there is a
// pause of kPauseFactor times what it took: so the gauges cost the publications a hundredth of the
// worker's time at most. With many objects a round takes longer;
// postbox_metrics_gauges_age_seconds says so. An object that cannot be read has no gauges until it
// can.
//
// What is in tables of users is read as their owner.
#ifndef POSTBOX_WORKER_PUBLISHER_GAUGES_H_
#define POSTBOX_WORKER_PUBLISHER_GAUGES_H_

#include <deque>

#include "extension/base/guard.h"
#include "extension/shared/metrics.h"
#include "worker/publisher/policy/moment.h"

namespace postbox::publisher {

class Gauges {
 public:
  // Measures some objects, if that is due. Runs its own transactions; throws nothing of Postgres.
  void Step(Moment now);
  // When a worker wakes up for it that has not come round by then for another reason, as a poll.
  Moment NextStep() const;

 private:
  struct Target {
    MetricKind kind;
    Oid relation;  // the outbox of a publication
    std::string name;
    MetricPlace place;
  };

  // Begins a round, or measures the next object.
  void Proceed(Moment now);
  void Begin(Moment now);
  // After the last object of a round.
  void End();
  static void Measure(const Target& target);

  std::deque<Target> left_;
  bool in_round_ = false;
  Moment round_ = 0;  // when it began
  Moment next_ = 0;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_GAUGES_H_

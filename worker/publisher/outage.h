// Shows the outages of publications (policy/outages.h) in postbox.publication_status, and in the
// log. Of the workers of a database, the first one to write about a publication is the only one
// (TellsOfOutage() in base/registration.h). A suspension for want of an answer has no lines of its
// own (lane_results.h).
#ifndef POSTBOX_WORKER_PUBLISHER_OUTAGE_H_
#define POSTBOX_WORKER_PUBLISHER_OUTAGE_H_

#include "extension/base/postgres.h"
#include "worker/publisher/delivery/outlet.h"
#include "worker/publisher/lane.h"
#include "worker/publisher/policy/outages.h"

namespace postbox::publisher {

class OutageWatch {
 public:
  // To be called in each turn of the worker's loop.
  void Look(const Outlets& outlets, const std::vector<LanePointer>& lanes, TimestampTz now);
  // When it is to be called again though nothing happens.
  TimestampTz NextLook() const { return next_look_; }

 private:
  static std::vector<Outages::Failing> Failing(const Outlets& outlets,
                                               const std::vector<LanePointer>& lanes);
  void Show() const;
  void Write(const Outages::Line& line) const;
  // What a moment of the steady clock, which the policy goes by, is for people.
  TimestampTz At(Moment moment) const { return now_ + (moment - steady_now_); }

  Outages outages_;
  TimestampTz now_ = 0;
  Moment steady_now_ = 0;
  TimestampTz next_look_ = DT_NOEND;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_OUTAGE_H_

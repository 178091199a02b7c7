// Publications that nobody answers: shows them in postbox.publication_status, and writes the log.
//
// The client goes on trying by itself (worker/pubsub/publish_scheduler.h), for as long as it takes.
// Until then nothing would say that events do not go out. So a publication of which events wait for
// a topic that has answered nothing for kPatience is `retrying`, until the topic answers.
//
// The log has a line when that begins, one a minute, and one when it has been over for kCalm. The
// workers of a database fail together: the first one to write about a publication is the only one
// (TellsOfOutage() in base/registration.h). A suspension for want of an answer has no lines of its
// own (lane.h).
#ifndef POSTBOX_WORKER_PUBLISHER_OUTAGE_H_
#define POSTBOX_WORKER_PUBLISHER_OUTAGE_H_

#include "extension/base/postgres.h"
#include "worker/publisher/lane.h"
#include "worker/publisher/outlet.h"

namespace postbox::publisher {

class OutageWatch {
 public:
  // To be called each time that the worker comes round.
  void Look(const Outlets& outlets, const std::vector<LanePointer>& lanes, TimestampTz now);
  // When it is to be called again though nothing happens.
  TimestampTz NextLook() const { return next_look_; }

 private:
  struct Outage {
    std::string publication;
    std::chrono::steady_clock::time_point since, next_try;
    std::string error;
    bool operator==(const Outage&) const = default;
  };
  // Whether events of the publication wait for an answer, or did so just now.
  bool Waits(const Lane& lane);
  void Find(const Outlet& outlet, const std::vector<LanePointer>& lanes);
  void Tell();
  void TellEnd();
  TimestampTz At(std::chrono::steady_clock::time_point time) const;

  std::vector<Outage> outages_;                                             // as they are shown
  std::map<std::string, std::chrono::steady_clock::time_point> waited_at_;  // by publication
  TimestampTz now_ = 0;
  std::chrono::steady_clock::time_point steady_now_;
  TimestampTz next_look_ = DT_NOEND;
  TimestampTz next_line_ = 0;
  TimestampTz ended_at_ = 0;  // if it is not said yet; 0: it goes on, or there was none
  // What the log was told of, and since when it goes on; empty: nothing.
  std::set<std::string> told_;
  TimestampTz told_since_ = 0;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_OUTAGE_H_

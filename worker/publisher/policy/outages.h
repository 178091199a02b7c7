// Publications whose topic answers nothing: which ones are shown, and when the log has a line.
//
// The client tries again by itself, for as long as it takes. A publication of which events wait for
// a topic that has answered nothing for kPatience has an outage, until the topic answers. The log
// has a line when that begins, one a minute, and one when it has been over for kCalm. The workers
// of a database fail together: only one of them writes about a publication.
#ifndef POSTBOX_WORKER_PUBLISHER_POLICY_OUTAGES_H_
#define POSTBOX_WORKER_PUBLISHER_POLICY_OUTAGES_H_

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "worker/publisher/policy/moment.h"

namespace postbox::publisher {

class Outages {
 public:
  // A request that fails now and then is no outage.
  static constexpr std::chrono::milliseconds kPatience{500};
  // What was given up is claimed and tried again. In between nothing waits, which says nothing
  // about the topic. And when one connection is there again, others may take a little longer.
  static constexpr std::chrono::milliseconds kCalm{3000};
  static constexpr std::chrono::milliseconds kLineInterval = std::chrono::minutes(1);

  struct Failing {
    std::string publication;
    bool waits = false;  // events of it wait for an answer
    Moment since = 0, next_try = 0;
    std::string error;
    bool operator==(const Failing&) const = default;
  };
  // The publications whose topics fail now, each once. A topic is not known to fail any more when
  // its next try is over by `forgotten`: nothing was sent to it. Returns whether outages() changed.
  bool Look(Moment now, std::vector<Failing> failing, std::chrono::milliseconds forgotten);
  const std::vector<Failing>& outages() const { return outages_; }
  // Whether nothing fails, and nothing is left to say.
  bool IsOver() const { return outages_.empty() && ended_at_ == 0; }

  struct Line {
    enum class Kind { kBegins, kGoesOn, kEnds } kind;
    std::set<std::string> publications;
    Failing first;                // of an outage that begins or goes on
    std::chrono::seconds lasted;  // of one that ends
  };
  // What the log is to say now. `is_ours`: whether this worker writes about a publication.
  std::optional<Line> TakeLine(const std::function<bool(const std::string&)>& is_ours,
                               TimeScale scaled);
  // When Look() may find something else though nothing happens.
  Moment next_look() const { return next_look_; }

 private:
  bool Waits(const Failing& failing);
  std::optional<Line> TakeEnd();

  Moment now_ = 0;
  std::vector<Failing> outages_;
  std::map<std::string, Moment> waited_at_;  // by publication
  Moment next_look_ = kNever;
  Moment next_line_ = 0;
  Moment ended_at_ = 0;           // if that is not logged yet; 0: it goes on, or there was none
  std::set<std::string> logged_;  // outages that the log has no end of
  Moment logged_since_ = 0;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_POLICY_OUTAGES_H_

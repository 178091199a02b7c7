// What the results of publishing say about a topic: when its publication is suspended, how it is
// tried meanwhile, and what ends that. One lane asks it; what is suspended is the publication, for
// all workers (store/publication_state.h).
//
// A topic fails in one of these ways:
//  - It is broken (missing, forbidden): the answers say so. The publication is suspended, and tried
//    again soon, with one event and so with one request (a probe), whatever waits.
//  - Nothing is answered: likewise, after shorter pauses. The client has tried for
//    postbox.publish_timeout by then, and does so again with what is claimed next.
//  - It refuses every event of a batch as invalid, and none has gone through before: then the topic
//    is to blame (a schema that is attached to it, say) and not each event. That is a broken topic,
//    too. But when that has lasted for as long as max_attempts attempts of an event would, a batch
//    is settled event by event, and the next one is tried at once, so that refused events at the
//    front do not hold up the others for ever.
//  - A probe was not sent, because the event has expired, say. That says nothing of the topic, and
//    many such events may be at the front: a batch is tried at once.
//  - A probe of a topic that was broken otherwise is refused as invalid. That may be the event's
//    own fault: a batch is tried at once, and tells.
// The first event that goes through ends any suspension.
//
// Until an event has gone through, a lane has one small batch on its way at a time, and what is
// refused waits for the results of the others: a refused event says something about the topic only
// beside the others. But a batch that has no results yet does not keep the next one back for long:
// perhaps it is the only one that gets no answer.
#ifndef POSTBOX_WORKER_PUBLISHER_POLICY_SUSPENSION_POLICY_H_
#define POSTBOX_WORKER_PUBLISHER_POLICY_SUSPENSION_POLICY_H_

#include <cstddef>

#include "extension/rules/backoff.h"
#include "worker/publisher/policy/moment.h"

namespace postbox::publisher {

class SuspensionPolicy {
 public:
  static constexpr std::size_t kProbeEvents = 1;
  // Of a topic that has not taken an event lately.
  static constexpr std::size_t kFirstEvents = 500;
  // Of one that has refused everything so far, where each event is stored by itself.
  static constexpr std::size_t kRefusedEvents = 50;
  // So many refused events in a row, and the lane is no longer sure of its topic.
  static constexpr std::size_t kManyRefused = 100;
  // Before the next batch, while the one before has no results. A probe may have met a connection
  // that is lost.
  static constexpr std::chrono::milliseconds kFirstPatience{200};
  static constexpr std::chrono::milliseconds kProbePatience{5000};
  // To recover quickly once the cause is fixed. Less if the publication's own backoff is.
  static constexpr pubsub::BackoffPolicy kTopicBackoff{std::chrono::seconds(1), 2.0,
                                                       std::chrono::seconds(4)};
  static constexpr pubsub::BackoffPolicy kOutageBackoff{std::chrono::milliseconds(500), 2.0,
                                                        std::chrono::seconds(1)};

  // `max_attempts` and `backoff`: of an event of the publication.
  SuspensionPolicy(int max_attempts, pubsub::BackoffPolicy backoff)
      : max_attempts_(max_attempts), backoff_(backoff) {}

  // What is stored of the publication, read with each claim: failures in a row, until when it is
  // suspended (0: it is not), and the moment of the first failure.
  void Read(int failures, Moment retry_at, Moment since);
  // Failures in a row, as far as this lane knows.
  bool failing() const { return failures_ > 0; }
  Moment retry_at() const { return retry_at_; }
  // It failed otherwise, and is not tried before `moment`.
  void Fail(Moment moment);
  void Postpone(Moment moment) { retry_at_ = moment; }
  // It is to be tried now.
  void TryNow() { retry_at_ = 0; }

  // Whether an event has gone through lately.
  bool has_published() const { return has_published_; }
  // Everything was refused for so long that this no longer says anything.
  bool refuses_many() const { return refused_in_row_ >= kManyRefused; }
  // When the next claim may be, with so many events on their way.
  Moment ClaimAt(std::size_t outstanding) const;
  // How many events a batch has until one has gone through. `few`: if any was refused, not many.
  std::size_t FirstEvents(bool few) const {
    return few && refused_in_row_ > 0 ? kRefusedEvents : kFirstEvents;
  }
  // How many events a claim may have that would have `batch`.
  std::size_t Most(Moment now, std::size_t batch) const;
  void Claimed(Moment now, TimeScale scaled);

  // What the results of a batch say, but for those that say nothing of the topic.
  struct Results {
    enum class Failure { kNone, kBroken, kUnanswered } failure = Failure::kNone;  // the first one
    std::size_t published = 0;
    std::size_t refused = 0;  // for the first time, and by the topic
    std::size_t unsent = 0;   // settled without being sent, as expired ones are
  };
  // The refused events have to wait for the results of the `outstanding` ones.
  bool Waits(const Results& results, std::size_t outstanding) const {
    return !has_published_ && outstanding > 0 && results.refused > 0 && results.published == 0;
  }
  enum class Verdict {
    kNone,        // nothing but what the results themselves say
    kBroken,      // suspended
    kUnanswered,  // likewise
    kRefuses,     // likewise, and nothing is known of the refused events: they are given back
    kUndecided,   // nothing is known of the refused event: it is given back
    kSettleEach,  // the refused events are to blame, each for itself
  };
  Verdict Judge(Moment now, const Results& results) const;
  static bool Suspends(Verdict verdict) {
    return verdict == Verdict::kBroken || verdict == Verdict::kUnanswered ||
           verdict == Verdict::kRefuses;
  }
  // How long it is suspended for that.
  pubsub::BackoffPolicy BackoffFor(Verdict verdict, TimeScale scaled) const;
  // Whether these results, once they are stored, end a suspension.
  bool Recovers(Verdict verdict, const Results& results) const;
  // The results are stored. `lost`: their source knows nothing of some of them any more, so they do
  // not end a suspension.
  void Settled(Moment now, Verdict verdict, const Results& results, bool lost);

 private:
  // Whether every event was refused, of enough events for that to be the topic's doing.
  bool RefusedThroughout(const Results& results) const;
  bool SettlesEach(Moment now) const;

  int max_attempts_;
  pubsub::BackoffPolicy backoff_;
  int failures_ = 0;
  Moment retry_at_ = 0;
  Moment since_ = 0;
  // What the last result of a suspended publication says about the next try. kBatch: a probe was
  // refused, or not sent. kRefusing: the topic refuses everything, and is probed until a
  // batch is due.
  enum class Try { kProbe, kBatch, kRefusing } try_ = Try::kProbe;
  bool has_published_ = false;
  Moment next_first_ = 0;  // the next batch until then
  std::size_t refused_in_row_ = 0;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_POLICY_SUSPENSION_POLICY_H_

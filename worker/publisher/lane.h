// One lane as this worker sees it: claims its events, stores their results, and waits after a
// failure.
//
// A failure is one of two:
//  - The topic is broken, or nothing goes through: the results say so. Settle() suspends the
//    publication in postbox.lane, for all workers and with the publication's own backoff.
//  - A statement on the outbox failed: a lock could not be had, the table was altered. The
//    publication is suspended in the same way, with a backoff of the worker's own, and the source
//    is rolled back to what the database knows.
//
// Invariants:
//  - Results that could not be stored stay here and are tried again; until then the lane claims
//    nothing. They count towards the budget (in_flight.h).
//  - An error of one lane concerns its publication and no other.
#ifndef POSTBOX_WORKER_PUBLISHER_LANE_H_
#define POSTBOX_WORKER_PUBLISHER_LANE_H_

#include "worker/publisher/base/outbox_source.h"
#include "worker/publisher/base/publication.h"
#include "worker/publisher/in_flight.h"

namespace postbox::publisher {

class Lane {
 public:
  // `topic` is the full name. `trouble`: why nothing can be published at all, or empty.
  Lane(Publication publication, std::string topic, std::string trouble,
       std::unique_ptr<OutboxSource> source);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  const std::string& publication_name() const { return publication_.name; }
  bool IsOf(const Publication& publication, std::string_view topic) const {
    return publication_ == publication && topic_ == topic;
  }

  // There may be something to claim.
  void Want() { wanted_ = true; }
  // The same, and the suspension that this worker remembers is over: somebody may have ended it.
  void WantNow();

  bool WantsToClaim(TimestampTz now) const {
    return wanted_ && retry_at_ <= now && unsettled_.empty();
  }
  // Claims as much as there is room for, in a transaction. The events' owner is for the caller to
  // set. Returns whether there may be more to do at once.
  bool Claim(TimestampTz now, const InFlight& in_flight, Events* events);

  // Takes an event that has its result. `leaving`: the worker is about to go.
  void AddResult(EventPointer event, bool leaving) {
    event->leaving = leaving;
    unsettled_.push_back(std::move(event));
  }
  bool HasResults() const { return !unsettled_.empty(); }
  // Stores the results, if it is time to (or `leaving`), and frees their room. Returns whether they
  // are stored.
  bool Settle(TimestampTz now, bool leaving, InFlight* in_flight);

  // Does what is due by the clock; when leaving, also what would be due later.
  void Maintain(TimestampTz now, bool leaving);

  // The worker cannot publish this lane now: suspends the publication with `error`.
  void Fail(TimestampTz now, const std::string& error);

  // When Maintain() has something to do, or a suspension is over.
  TimestampTz NextWork(TimestampTz now) const;
  // When results that could not be stored are tried again.
  TimestampTz settle_at() const { return settle_at_; }

 private:
  // What the results of a settlement say about the publication.
  struct Summary {
    const ClaimedEvent* broken = nullptr;  // its result says that the topic is broken
    bool published = false;
    std::size_t bytes = 0;
  };
  Summary Summarize() const;
  // The transaction of Settle(), if it needs one. False if it failed.
  bool Store(TimestampTz now, const Summary& summary, bool leaving);
  void RollBack(TimestampTz now, const std::string& error);
  void LogOnce(const std::string& error);

  const Publication publication_;
  const std::string topic_;
  const std::string trouble_;
  const std::unique_ptr<OutboxSource> source_;

  bool wanted_ = true;
  int attempts_ = 0;  // failures in a row, as in postbox.lane
  TimestampTz retry_at_ = 0;
  bool failed_ = false;  // suspended because of a statement, not of the topic

  Events unsettled_;
  TimestampTz settle_at_ = 0;
  int settle_failures_ = 0;

  std::string logged_error_;  // the last one, to be logged once
};
using LanePointer = std::shared_ptr<Lane>;

// The lanes of a publication.
std::vector<LanePointer> MakeLanes(const Publication& publication, const std::string& topic);

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_LANE_H_

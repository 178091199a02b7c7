// The events between their claim and the storing of their results: where they are kept, and how
// much room is left for more.
//
//   Add()         a claim has committed: the events are here, and wait to be handed over
//                 If the server has synchronous standbys they wait for these before that
//                 (standby_queue_logic.h).
//   HandOver()    the client takes as many as its own budget allows; it has pointers only
//   TakeResults() the client is done with an event: its lane has it now and stores the result
//   Settled()     the result is stored: its room is free
//
// So the budget, postbox.max_outstanding_messages and _bytes, also counts the results that could
// not be stored yet. If there are several publications, each has a part of the budget guaranteed
// (proto/rules/fair_share.h), however long the events of the others stay here.
//
// What an event takes beyond the budget: the request that it is sent in is a copy, from sending to
// the answer. So the worker needs about twice the budget, a few portions of rows while it reads
// (event_rows.h), and what malloc keeps (heap.h). tests/tap/memory_of_worker.pl measures it.
#ifndef POSTBOX_WORKER_PUBLISHER_IN_FLIGHT_H_
#define POSTBOX_WORKER_PUBLISHER_IN_FLIGHT_H_

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "worker/publisher/base/claimed_event.h"
#include "worker/publisher/base/outbox_source.h"
#include "worker/publisher/standby_queue_logic.h"
#include "worker/pubsub/publisher.h"

namespace postbox::publisher {

// What the lanes of one publication hold of the budget, when their events last went through, and
// whether that says something about what they claim next.
struct Holding {
  std::size_t events = 0;
  std::size_t bytes = 0;
  TimestampTz published_at = 0;
  bool proven = false;
};

class InFlight {
 public:
  // Who shares the budget.
  void SetPublications(std::vector<std::shared_ptr<const Holding>> publications) {
    publications_ = std::move(publications);
  }

  // Whether there is room for a claim of up to `batch_size` events of the publication that holds
  // `held`, and what may be claimed. With nothing in flight there always is. A publication of which
  // nothing has gone through yet (not Holding::proven) gets its guaranteed part, which costs the
  // others nothing. That a lane of it is new says nothing: what the others hold must not keep it
  // back. `keep`: a fourth of the budget is not to be used.
  bool Room(std::size_t batch_size, const Holding& held, bool keep, ClaimLimits* limits) const;

  // `wait_for`: up to there WAL must become safe before the events are sent; 0: it is.
  void Add(Events events, Holding* holding, const std::string& publication, std::uint64_t wait_for,
           std::int64_t now);
  // `confirmed`: up to where WAL is safe.
  void HandOver(pubsub::Publisher* client, std::uint64_t confirmed);
  const StandbyQueue& standby_queue() const { return standby_queue_; }
  // What has waited for standbys for `most` microseconds, and all behind it. It was not sent.
  Events TakeUnsafe(std::int64_t now, std::int64_t most);
  // Nothing more is handed over of what waits; it stays here until TakeAll().
  void StopHandOver();

  // The events whose results the client has, in the order in which the results came about.
  Events TakeResults(pubsub::Publisher* client);
  // Everything that has no result. Only when the client is gone.
  Events TakeAll();

  // Whether every event that was claimed is settled.
  bool empty() const { return unsettled_.events == 0; }

  void Settled(std::size_t events, std::size_t bytes, Holding* holding);

 private:
  // The same for a number of places or of bytes.
  std::size_t Left(std::size_t places, std::size_t Holding::*of, const Holding& held) const;
  void ForgetHandedOver();
  Events TakeOut(const std::vector<pubsub::OutgoingMessage*>& messages);

  // By the place that stands in the event; a free place holds nothing.
  std::vector<EventPointer> events_;
  std::vector<std::size_t> free_places_;
  std::vector<pubsub::OutgoingMessage*> waiting_;  // from handed_over_ on
  std::size_t handed_over_ = 0;
  StandbyQueue standby_queue_;  // what may not be handed over yet
  Holding unsettled_;
  std::vector<std::shared_ptr<const Holding>> publications_;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_IN_FLIGHT_H_

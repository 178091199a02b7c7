// The events between their claim and the storing of their results: where they are kept, and how
// much room is left for more.
//
//   Add()         a claim has committed: the events are here, and wait to be handed over
//   HandOver()    the client takes as many as its own budget allows; it has pointers only
//   TakeResults() the client is done with an event: its lane has it now and stores the result
//   Settled()     the result is stored: its room is free
//
// So the budget, postbox.max_outstanding_messages and _bytes, also counts the results that could
// not be stored yet.
#ifndef POSTBOX_WORKER_PUBLISHER_IN_FLIGHT_H_
#define POSTBOX_WORKER_PUBLISHER_IN_FLIGHT_H_

#include <cstddef>
#include <vector>

#include "worker/publisher/base/claimed_event.h"
#include "worker/publisher/base/outbox_source.h"
#include "worker/pubsub/publisher.h"

namespace postbox::publisher {

class InFlight {
 public:
  // Whether there is room for a claim of up to `batch_size` events, and what may be claimed. With
  // nothing in flight there always is.
  bool Room(int batch_size, ClaimLimits* limits) const;

  void Add(Events events);
  void HandOver(pubsub::Publisher* client);
  // Nothing more is handed over of what waits; it stays here until TakeAll().
  void StopHandOver();

  // The events whose results the client has, in the order in which the results came about.
  Events TakeResults(pubsub::Publisher* client);
  // Everything that has no result. Only when the client is gone.
  Events TakeAll();

  void Settled(std::size_t events, std::size_t bytes);

 private:
  // By the place that stands in the event; a free place holds nothing.
  std::vector<EventPointer> events_;
  std::vector<std::size_t> free_places_;
  std::vector<pubsub::OutgoingMessage*> waiting_;  // from handed_over_ on
  std::size_t handed_over_ = 0;
  std::size_t unsettled_events_ = 0;
  std::size_t unsettled_bytes_ = 0;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_IN_FLIGHT_H_

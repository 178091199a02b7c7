// The events of one identity between their claim and the storing of their results: where they are
// kept. How many there may be: budget.h.
//
//   Add()         a claim has committed: the events are here, and wait to be handed over
//                 If the server has synchronous standbys they wait for these before that
//                 (standby_queue_logic.h).
//   HandOver()    the client takes as many as its own budget allows; it has pointers only
//   TakeResults() the client is done with an event: its lane has it now and stores the result
#ifndef POSTBOX_WORKER_PUBLISHER_DELIVERY_IN_FLIGHT_H_
#define POSTBOX_WORKER_PUBLISHER_DELIVERY_IN_FLIGHT_H_

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "worker/publisher/delivery/standby_queue_logic.h"
#include "worker/publisher/source/claimed_event.h"
#include "worker/pubsub/publish/publisher.h"

namespace postbox::publisher {

class InFlight {
 public:
  // `wait_for`: up to there WAL must become safe before the events are sent; 0: it is.
  void Add(Events events, const std::string& publication, std::uint64_t wait_for, std::int64_t now);
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

 private:
  void ForgetHandedOver();
  Events TakeOut(const std::vector<pubsub::OutgoingMessage*>& messages);

  // By the place that stands in the event; a free place holds nothing.
  std::vector<EventPointer> events_;
  std::vector<std::uint32_t> free_places_;
  std::vector<pubsub::OutgoingMessage*> waiting_;  // from handed_over_ on
  std::size_t handed_over_ = 0;
  StandbyQueue standby_queue_;  // what may not be handed over yet
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_DELIVERY_IN_FLIGHT_H_

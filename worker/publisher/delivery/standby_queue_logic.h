// Events that were claimed and must not be sent yet: a synchronous standby has not confirmed the
// WAL that makes them durable.
//
// An event may be visible here before it is safe there: its COMMIT did not wait for the standby
// (synchronous_commit = local or off), its wait was cancelled, or the server has restarted
// meanwhile. If such an event were sent and the standby promoted, consumers would have an event
// that never happened. So what a claim has read waits until WAL is confirmed up to where the claim
// read it. The worker does not wait: it looks from time to time, and goes on with what it has sent.
//
// Positions in WAL only grow, and so do the claims'. So batches leave in the order in which they
// came, whatever lane they are of, and one that came later is never safe earlier.
//
//   Add()       a claim's events, with the position up to which WAL must be confirmed
//   TakeSafe()  what is confirmed
//   Stalled()   the first batch has waited for `most`: nothing more is claimed, and
//               postbox.publication_status says why
//   GiveBack()  it has waited for so long that a lease may end: the events go back to where they
//               were. The batch stays without them, so that they are claimed again only when they
//               would be safe.
//
// Single-threaded, no Postgres. Times are in microseconds, positions are bytes of WAL.
#ifndef POSTBOX_WORKER_PUBLISHER_DELIVERY_STANDBY_QUEUE_LOGIC_H_
#define POSTBOX_WORKER_PUBLISHER_DELIVERY_STANDBY_QUEUE_LOGIC_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace postbox::pubsub {
struct OutgoingMessage;
}

namespace postbox::publisher {

class StandbyQueue {
 public:
  using Messages = std::vector<pubsub::OutgoingMessage*>;
  struct Waiting {
    std::string publication;
    std::uint64_t position;
    std::int64_t since;
    bool operator==(const Waiting&) const = default;
  };

  bool empty() const { return batches_.empty(); }
  void Add(const std::string& publication, std::uint64_t position, std::int64_t now,
           Messages messages);
  // What WAL that is confirmed up to `confirmed` makes safe, in order.
  Messages TakeSafe(std::uint64_t confirmed);

  bool Stalled(std::int64_t now, std::int64_t most) const {
    return !empty() && batches_.front().waiting.since + most <= now;
  }
  // All that waits, if the first batch has waited for `most`.
  Messages GiveBack(std::int64_t now, std::int64_t most);
  void Clear() { batches_.clear(); }

  // The first batch of each publication.
  std::vector<Waiting> Overview() const;
  // When to look next: soon at first, since a standby answers within a round trip, and then less
  // and less often.
  std::int64_t NextLook(std::int64_t now) const;

 private:
  struct Batch {
    Waiting waiting;
    Messages messages;
  };
  std::deque<Batch> batches_;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_DELIVERY_STANDBY_QUEUE_LOGIC_H_

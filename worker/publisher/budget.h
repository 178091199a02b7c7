// How much the worker has claimed and not settled, and how much room is left for more.
//
//   Add()      a claim has committed
//   Settled()  the result is stored: its room is free
//
// So the budget, postbox.max_outstanding_messages and _bytes, also counts the results that could
// not be stored yet. If there are several publications, each has a part of the budget guaranteed
// (proto/rules/fair_share.h), however long the events of the others stay. With how many identities
// they publish does not matter: there is one budget.
//
// What an event takes beyond the budget: the request that it is sent in is a copy, from sending to
// the answer. So the worker needs about twice the budget, a few portions of rows while it reads
// (event_rows.h), and what malloc keeps (heap.h). tests/tap/memory_of_worker.pl measures it.
#ifndef POSTBOX_WORKER_PUBLISHER_BUDGET_H_
#define POSTBOX_WORKER_PUBLISHER_BUDGET_H_

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "worker/publisher/base/outbox_source.h"

namespace postbox::publisher {

// What the lanes of one publication hold of the budget, when their events last went through, and
// whether that says something about what they claim next.
struct Holding {
  std::size_t events = 0;
  std::size_t bytes = 0;
  TimestampTz published_at = 0;
  bool proven = false;
};

class Budget {
 public:
  // Who shares the budget.
  void SetPublications(std::vector<std::shared_ptr<const Holding>> publications) {
    publications_ = std::move(publications);
  }

  // Whether there is room for a claim of up to `batch_size` events of the publication that holds
  // `held`, and what may be claimed. With nothing in flight there always is. A publication of which
  // nothing has gone through yet (not Holding::proven) gets its guaranteed part, which costs the
  // others nothing. That a lane of it is new says nothing: what the others hold must not keep it
  // back. `keep`: KeptPart() of the budget is not to be used.
  bool Room(std::size_t batch_size, const Holding& held, bool keep, ClaimLimits* limits) const;

  void Add(std::size_t events, std::size_t bytes, Holding* holding);
  void Settled(std::size_t events, std::size_t bytes, Holding* holding);

  // Whether every event that was claimed is settled.
  bool empty() const { return unsettled_.events == 0; }

 private:
  // The same for a number of places or of bytes.
  std::size_t Left(std::size_t places, std::size_t Holding::*of, const Holding& held) const;

  Holding unsettled_;
  std::vector<std::shared_ptr<const Holding>> publications_;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_BUDGET_H_

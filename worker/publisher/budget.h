// How much the worker has claimed and not settled, and how much room is left for more.
//
//   Add()      a claim has committed
//   Settled()  the result is stored: its room is free
//
// So the budget, postbox.max_outstanding_messages and _bytes, also counts the results that could
// not be stored yet. If there are several publications, each has a part of the budget guaranteed
// (extension/rules/fair_share.h), however long the events of the others stay. With how many
// identities they publish does not matter: there is one budget.
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

#include "worker/publisher/source/outbox_source.h"
#include "worker/publisher/tenant.h"

namespace postbox::publisher {

class Budget {
 public:
  // Who shares the budget.
  void SetTenants(std::vector<std::shared_ptr<const Tenant>> tenants) {
    tenants_ = std::move(tenants);
  }

  // Whether there is room for a claim of up to `batch_size` events of this publication, and what
  // may be claimed. With nothing in flight there always is. A publication of which nothing has gone
  // through yet (not Tenant::has_published) gets its guaranteed part, which costs the others
  // nothing. That a lane of it is new says nothing: what the others hold must not keep it back.
  // `keep`: KeptPart() of the budget is not to be used.
  bool Room(std::size_t batch_size, const Tenant& tenant, bool keep, ClaimLimits* limits) const;

  void Add(std::size_t events, std::size_t bytes, Tenant* tenant);
  void Settled(std::size_t events, std::size_t bytes, Tenant* tenant);

  // Whether every event that was claimed is settled.
  bool empty() const { return events_ == 0; }

 private:
  // The same for a number of places or of bytes, of which all publications hold `all`.
  std::size_t Left(std::size_t places, std::size_t all, std::size_t Tenant::*of,
                   const Tenant& tenant) const;

  // Of all publications, also of those that are gone.
  std::size_t events_ = 0;
  std::size_t bytes_ = 0;
  std::vector<std::shared_ptr<const Tenant>> tenants_;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_BUDGET_H_

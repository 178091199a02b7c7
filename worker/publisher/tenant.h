// A publication among those that share this worker: what its lanes hold of the budget, and its
// account of the worker's time. The lanes of a publication share it.
#ifndef POSTBOX_WORKER_PUBLISHER_TENANT_H_
#define POSTBOX_WORKER_PUBLISHER_TENANT_H_

#include <memory>

#include "worker/publisher/policy/turn_account.h"
#include "worker/publisher/policy/turn_limit.h"

namespace postbox::publisher {

struct Tenant {
  // Claimed, and not settled yet.
  std::size_t events = 0;
  std::size_t bytes = 0;
  // Whether an event has gone through lately, and when that was.
  bool has_published = false;
  Moment published_at = 0;
  // Whether there are other publications. Where there are none, no turn has to wait.
  bool shares_worker = false;
  TurnAccount account;

  Moment WaitsUntil() const { return shares_worker ? account.waits_until() : 0; }
  // What one of its turns may take now.
  std::chrono::milliseconds TimeOf(const TurnLimit& limit) const;
  // A turn that began at `begin` is over; see TurnAccount::Charge().
  bool Charge(Moment begin, std::size_t events, const TurnLimit& limit,
              bool nothing_published = false);
  // The same for one that failed.
  void ChargeFailure(Moment begin, const TurnLimit& limit);
};

// The longest wait of a publication: its leases must not end meanwhile.
std::chrono::milliseconds LongestWait();

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_TENANT_H_

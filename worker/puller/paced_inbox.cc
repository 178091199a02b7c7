#include "worker/puller/paced_inbox.h"

#include "worker/puller/log.h"

namespace postbox::puller {

InboxResult PacedInbox::Apply(const std::vector<const Delivery*>& events,
                              std::optional<std::chrono::milliseconds> lock_timeout) {
  if (events.empty()) return inbox_->Apply(events, lock_timeout);
  const auto trial = gate_->lock_timeout();
  const bool short_wait = trial && (lock_timeout_.count() == 0 || *trial < lock_timeout_);
  InboxResult result = inbox_->Apply(events, short_wait ? trial : lock_timeout);
  if (!result.ok && Lost(result, short_wait) && gate_->AwaitTurn(ticket_)) {
    result = inbox_->Apply(events, lock_timeout);
  }
  if (result.ok) gate_->Committed(ticket_, events.size(), std::chrono::steady_clock::now());
  return result;
}

bool PacedInbox::Lost(const InboxResult& result, bool short_wait) {
  // deadlock_detected, serialization_failure, lock_not_available. After the usual time the lock is
  // hardly one of the subscription's own transactions.
  const bool waited = short_wait && result.sqlstate == "55P03";
  if (!waited && result.sqlstate != "40P01" && result.sqlstate != "40001") return false;
  const bool shared = gate_->Conflicted(ticket_, std::chrono::steady_clock::now());
  if (!shared && !waited) return false;
  LogDebug("transactions of the subscription want the same locks, this one is tried alone",
           {{"subscription", subscription_}, {"sqlstate", result.sqlstate}});
  return true;
}

}  // namespace postbox::puller

#include "worker/puller/paced_inbox.h"

#include "worker/puller/log.h"

namespace postbox::puller {

InboxResult PacedInbox::Apply(const std::vector<const Delivery*>& events,
                              std::optional<std::chrono::milliseconds> time) {
  if (events.empty()) return inbox_->Apply(events, time);
  const auto limit = gate_->time_limit();
  InboxResult result = inbox_->Apply(events, limit ? limit : time);
  const bool lost = !result.ok && Lost(result, limit);
  was_late_ = limit && result.took >= *limit;
  if (lost && AwaitTurn()) result = inbox_->Apply(events, time);
  if (result.ok) gate_->Committed(ticket_, events.size(), std::chrono::steady_clock::now());
  return result;
}

bool PacedInbox::AwaitTurn() {
  if (on_turn_) on_turn_(true);
  const bool turn = gate_->AwaitTurn(ticket_);
  if (on_turn_) on_turn_(false);
  return turn;
}

bool PacedInbox::Lost(const InboxResult& result, std::optional<std::chrono::milliseconds> limit) {
  // query_canceled, deadlock_detected, serialization_failure
  const bool late = was_late_ || (limit && result.took >= *limit);
  const bool cancelled = late && result.sqlstate == "57014";
  if (!cancelled && result.sqlstate != "40P01" && result.sqlstate != "40001") return false;
  const bool shared = gate_->Conflicted(ticket_, std::chrono::steady_clock::now());
  if (!shared && !cancelled) return false;
  LogDebug("lock conflict between transactions of the subscription, this one is tried again alone",
           {{"subscription", subscription_}, {"sqlstate", result.sqlstate}});
  return true;
}

}  // namespace postbox::puller

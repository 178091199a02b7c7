// An inbox to which the appliers of a subscription keep the pace of their gate.
//
// A transaction that lost against another one of the subscription, in a deadlock for example, is
// applied once more while no other one runs. What fails then is the caller's to decide.
#ifndef POSTBOX_WORKER_PULLER_PACED_INBOX_H_
#define POSTBOX_WORKER_PULLER_PACED_INBOX_H_

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "worker/puller/apply_gate.h"
#include "worker/puller/inbox_client.h"

namespace postbox::puller {

class PacedInbox : public InboxClient {
 public:
  using InboxClient::Apply;

  // `lock_timeout`: the usual one of `inbox`, 0 if there is none.
  PacedInbox(std::string subscription, InboxClient* inbox, ApplyGate* gate,
             std::chrono::milliseconds lock_timeout)
      : subscription_(std::move(subscription)),
        inbox_(inbox),
        gate_(gate),
        lock_timeout_(lock_timeout) {}

  // Before and after a batch is applied.
  void Enter() { ticket_ = gate_->Enter(std::chrono::steady_clock::now()); }
  void Leave() { gate_->Leave(ticket_); }

  InboxResult Apply(const std::vector<const Delivery*>& events,
                    std::optional<std::chrono::milliseconds> lock_timeout) override;
  InboxResult RecordDeadLetter(const Delivery& delivery, const EventFailure& failure) override {
    return inbox_->RecordDeadLetter(delivery, failure);
  }

 private:
  // Whether the transaction is to be tried alone.
  bool Lost(const InboxResult& result, bool short_wait);

  const std::string subscription_;
  InboxClient* const inbox_;
  ApplyGate* const gate_;
  const std::chrono::milliseconds lock_timeout_;
  ApplyGate::Ticket ticket_;
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_PACED_INBOX_H_

// An inbox to which the appliers of a subscription keep the pace of their gate.
//
// A transaction that lost against another one of the subscription, in a deadlock for example, is
// applied once more while no other one runs. What fails then is the caller's to decide.
#ifndef POSTBOX_WORKER_PULLER_PACED_INBOX_H_
#define POSTBOX_WORKER_PULLER_PACED_INBOX_H_

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker/puller/apply_gate.h"
#include "worker/puller/inbox_client.h"

namespace postbox::puller {

class PacedInbox : public InboxClient {
 public:
  using InboxClient::Apply;

  // `on_turn`, if given: the wait for a turn begins (true) or is over.
  PacedInbox(std::string subscription, InboxClient* inbox, ApplyGate* gate,
             std::function<void(bool waits)> on_turn = nullptr)
      : subscription_(std::move(subscription)),
        inbox_(inbox),
        gate_(gate),
        on_turn_(std::move(on_turn)) {}

  // Before and after a batch is applied.
  void Enter() { ticket_ = gate_->Enter(std::chrono::steady_clock::now()); }
  void Leave() { gate_->Leave(ticket_); }

  InboxResult Apply(const std::vector<const Delivery*>& events,
                    std::optional<std::chrono::milliseconds> time) override;
  InboxResult RecordDeadLetter(const Delivery& delivery, const EventFailure& failure,
                               bool park) override {
    return inbox_->RecordDeadLetter(delivery, failure, park);
  }

 private:
  bool AwaitTurn();
  // Whether the transaction is to be tried alone.
  bool Lost(const InboxResult& result, std::optional<std::chrono::milliseconds> limit);

  const std::string subscription_;
  InboxClient* const inbox_;
  ApplyGate* const gate_;
  const std::function<void(bool waits)> on_turn_;
  ApplyGate::Ticket ticket_;
  // The last transaction was late for its limit. The request to cancel it may come to the next one.
  bool was_late_ = false;
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_PACED_INBOX_H_

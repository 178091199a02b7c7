// A publication's account of the worker's time. The outboxes and inboxes that retention empties
// have one each, too.
//
// All publications of a database share one thread. A turn of one of them (a claim, a settlement, a
// batch of retention) is what the worker is there for as long as it takes kTimeOfEvent for each
// event that it moves. What it takes beyond that is a debt, and is paid off by waiting kWaitFactor
// times as long: so a publication has a tenth of the worker's time, whatever its owner does to it.
//
//  - While other publications get events through, a publication in debt claims nothing. While none
//    does, it claims, and the debt is forgiven.
//  - A turn that was kLongTurn too long holds up whatever comes meanwhile, also where nothing was
//    waiting when it began. Such debts add up. When they exceed kAllowance, the publication has no
//    turn at all until they do not. The allowance is for disks and processors, which have hiccups;
//    a turn that failed uses it up.
//  - A turn costs no more than its limit (turn_limit.h). A turn is cancelled then, so a longer one
//    is the machine's doing.
//  - No wait is longer than the caller says: leases must not end meanwhile.
#ifndef POSTBOX_WORKER_PUBLISHER_POLICY_TURN_ACCOUNT_H_
#define POSTBOX_WORKER_PUBLISHER_POLICY_TURN_ACCOUNT_H_

#include <cstddef>

#include "worker/publisher/policy/moment.h"

namespace postbox::publisher {

class TurnAccount {
 public:
  static constexpr std::chrono::microseconds kTimeOfEvent{100};
  static constexpr int kWaitFactor = 9;
  // A shorter debt is not worth a wait.
  static constexpr std::chrono::milliseconds kShortTurn{5};
  static constexpr std::chrono::milliseconds kLongTurn{100};
  static constexpr std::chrono::milliseconds kAllowance{500};

  struct Turn {
    Moment begin = 0, end = 0;
    std::size_t events = 0;  // claimed, stored as published, or deleted
    // It was for nothing but failures: it costs all of its time.
    bool nothing_published = false;
    std::chrono::milliseconds limit{};  // after which it was to be cancelled
    bool failed = false;
    // No other publication is there. Then only a failure costs: a publication that comes does not
    // meet the next such turn at once.
    bool alone = false;
  };
  // Returns whether all turns of the publication have to wait now.
  bool Charge(const Turn& turn, std::chrono::milliseconds longest_wait, TimeScale scaled);

  // Before this moment it claims nothing while others publish.
  Moment rests_until() const { return rests_until_; }
  // It claims nevertheless: no other publication is held up.
  void Forgive() { rests_until_ = 0; }
  // Before this moment it has no turn.
  Moment waits_until() const { return waits_until_; }
  // The wait is over then, at the latest; what is left of the debt counts no more.
  void EndWaitAt(Moment moment);

 private:
  // When a debt is paid off that is added to what is owed until then. The turn itself pays nothing.
  static Moment Owed(Moment until, const Turn& turn, std::chrono::milliseconds debt,
                     std::chrono::milliseconds longest);

  Moment rests_until_ = 0;
  Moment waits_until_ = 0;
  Moment paid_off_at_ = 0;  // when what long turns have cost is paid, with the allowance
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_POLICY_TURN_ACCOUNT_H_

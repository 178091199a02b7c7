#include "worker/publisher/policy/turn_account.h"

namespace postbox::publisher {

using std::chrono::milliseconds;

bool TurnAccount::Charge(const Turn& turn, milliseconds longest_wait, TimeScale scaled) {
  const auto needed = std::chrono::floor<milliseconds>(kTimeOfEvent * turn.events);
  const milliseconds debt = std::min(Between(turn.begin, turn.end), turn.limit) - needed;
  if (debt > (turn.nothing_published ? milliseconds(0) : kShortTurn)) {
    rests_until_ = After(turn.end, std::min(kWaitFactor * debt, longest_wait));
  }
  const milliseconds excess = debt - scaled(kLongTurn);
  if (excess <= milliseconds(0)) return false;
  const milliseconds allowance = kWaitFactor * scaled(kAllowance);
  // The turn itself pays for nothing.
  const Moment owed_until = std::max(paid_off_at_ + (turn.end - turn.begin), turn.end);
  paid_off_at_ = After(owed_until, kWaitFactor * excess);
  paid_off_at_ = std::min(paid_off_at_, After(turn.end, longest_wait + allowance));
  waits_until_ = After(paid_off_at_, -allowance);
  return waits_until_ > turn.end;
}

}  // namespace postbox::publisher

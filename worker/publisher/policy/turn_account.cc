#include "worker/publisher/policy/turn_account.h"

namespace postbox::publisher {

using std::chrono::milliseconds;

Moment TurnAccount::Owed(Moment until, const Turn& turn, milliseconds debt, milliseconds longest) {
  const Moment begin = std::max(until + (turn.end - turn.begin), turn.end);
  return std::min(After(begin, kWaitFactor * debt), After(turn.end, longest));
}

bool TurnAccount::Charge(const Turn& turn, milliseconds longest_wait, TimeScale scaled) {
  if (turn.alone && !turn.failed) return false;
  const auto needed = std::chrono::floor<milliseconds>(kTimeOfEvent * turn.events);
  const milliseconds debt = std::min(Between(turn.begin, turn.end), turn.limit) - needed;
  if (debt > (turn.nothing_published ? milliseconds(0) : kShortTurn)) {
    rests_until_ = Owed(rests_until_, turn, debt, longest_wait);
  }
  const milliseconds excess = debt - scaled(kLongTurn);
  if (excess <= milliseconds(0)) return false;
  const milliseconds allowance = kWaitFactor * scaled(kAllowance);
  if (turn.failed) paid_off_at_ = std::max(paid_off_at_, After(turn.begin, allowance));
  paid_off_at_ = Owed(paid_off_at_, turn, excess, longest_wait + allowance);
  waits_until_ = After(paid_off_at_, -allowance);
  return waits_until_ > turn.end;
}

void TurnAccount::EndWaitAt(Moment moment) {
  if (waits_until_ <= moment) return;
  paid_off_at_ -= waits_until_ - moment;
  waits_until_ = moment;
}

}  // namespace postbox::publisher

#include "worker/publisher/tenant.h"

#include "extension/base/guard.h"
#include "extension/shared/time_scale.h"
#include "worker/publisher/base/registration.h"
#include "worker/publisher/scale.h"

namespace postbox::publisher {
namespace {

// When the worker has to leave.
constexpr std::chrono::milliseconds kLastTurn(500);

}  // namespace

std::chrono::milliseconds LongestWait() { return LeaseTime() / 4; }

std::chrono::milliseconds Tenant::TimeOf(const TurnLimit& limit) const {
  return Scale()(StopRequested() ? kLastTurn : limit.value(shares_worker));
}

bool Tenant::Charge(Moment begin, std::size_t events, const TurnLimit& limit,
                    bool nothing_published) {
  if (!shares_worker) return false;
  return account.Charge({begin, GetCurrentTimestamp(), events, nothing_published, TimeOf(limit)},
                        LongestWait(), Scale());
}

void Tenant::ChargeFailure(Moment begin, const TurnLimit& limit) {
  if (!shares_worker) return;
  account.Charge({begin, GetCurrentTimestamp(), 0, false, TimeOf(limit), true}, LongestWait(),
                 Scale());
}

}  // namespace postbox::publisher

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
  return account.Charge({.begin = begin,
                         .end = GetCurrentTimestamp(),
                         .events = events,
                         .nothing_published = nothing_published,
                         .limit = TimeOf(limit),
                         .alone = !shares_worker},
                        LongestWait(), Scale());
}

void Tenant::ChargeFailure(Moment begin, const TurnLimit& limit) {
  account.Charge({.begin = begin,
                  .end = GetCurrentTimestamp(),
                  .limit = TimeOf(limit),
                  .failed = true,
                  .alone = !shares_worker},
                 LongestWait(), Scale());
}

}  // namespace postbox::publisher

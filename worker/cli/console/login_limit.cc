#include "worker/cli/console/login_limit.h"

#include <algorithm>

namespace postbox::cli {
namespace {

std::chrono::seconds WaitAfter(int failures) {
  if (failures < LoginLimit::kFree) return std::chrono::seconds(0);
  const int doublings = std::min(failures - LoginLimit::kFree, 10);
  return std::min(std::chrono::seconds(1 << doublings), LoginLimit::kLongestWait);
}

std::chrono::seconds Until(LoginLimit::Clock::time_point end, LoginLimit::Clock::time_point now) {
  return std::max(std::chrono::ceil<std::chrono::seconds>(end - now), std::chrono::seconds(0));
}

}  // namespace

std::chrono::seconds LoginLimit::Try(const std::string& address, Clock::time_point now) {
  Forget(now);
  const auto known = failures_.find(address);
  if (known != failures_.end()) {
    const auto wait = Until(known->second.last + WaitAfter(known->second.count), now);
    if (wait.count() > 0) return wait;
  }
  if (attempts_.size() >= kMostOfAll) return Until(attempts_.front() + kWindow, now);
  attempts_.push_back(now);
  Failures& failures = failures_[address];
  ++failures.count;
  failures.last = now;
  return std::chrono::seconds(0);
}

void LoginLimit::Succeeded(const std::string& address) {
  failures_.erase(address);
  if (!attempts_.empty()) attempts_.pop_back();
}

void LoginLimit::Forget(Clock::time_point now) {
  while (!attempts_.empty() && attempts_.front() + kWindow <= now) attempts_.pop_front();
  std::erase_if(failures_, [&](const auto& one) { return one.second.last + kForget <= now; });
  while (failures_.size() >= kMostAddresses) {
    const auto oldest = std::min_element(
        failures_.begin(), failures_.end(),
        [](const auto& a, const auto& b) { return a.second.last < b.second.last; });
    failures_.erase(oldest);
  }
}

}  // namespace postbox::cli

#include "worker/puller/apply_gate.h"

#include <algorithm>
#include <iterator>

namespace postbox::puller {
namespace {

constexpr std::chrono::minutes kRemembered{1};
// More conflicts than that in a minute are not counted.
constexpr size_t kMostConflicts = 10000;

}  // namespace

ApplyGate::TimePoint ApplyGate::CountsUntil(const Pass& pass) const {
  const bool lately = !conflicts_.empty() && pass.since - conflicts_.back() < kRemembered;
  if (!lately) return pass.since + kLong;
  return pass.since + std::max<TimePoint::duration>(kLongAfterConflict, 3 * typical_);
}

bool ApplyGate::Counts(const Pass& pass, TimePoint now) const {
  return !pass.waits && now < CountsUntil(pass);
}

int ApplyGate::Running(TimePoint now) const {
  return static_cast<int>(std::count_if(inside_.begin(), inside_.end(),
                                        [&](const Pass& pass) { return Counts(pass, now); }));
}

bool ApplyGate::Open(TimePoint now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (turns_.empty() && Running(now) < pace_.width()) return true;
  pace_.Wanted();
  return false;
}

bool ApplyGate::HasRoomBeside(int connected, TimePoint now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const int about_to_enter = std::max(0, connected - static_cast<int>(inside_.size()));
  if (turns_.empty() && Running(now) + about_to_enter < pace_.width()) return true;
  pace_.Wanted();
  return false;
}

ApplyGate::TimePoint ApplyGate::NextOpening(TimePoint now) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto next = now + kLongAfterConflict;
  for (const Pass& pass : inside_) {
    if (Counts(pass, now)) next = std::min(next, CountsUntil(pass));
  }
  return next;
}

ApplyGate::Ticket ApplyGate::Enter(TimePoint now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (Pass& pass : inside_) pass.shared = true;
  return inside_.insert(inside_.end(), {.since = now, .shared = !inside_.empty()});
}

void ApplyGate::Leave(Ticket ticket) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    inside_.erase(ticket);
  }
  changed_.notify_all();
}

std::optional<std::chrono::milliseconds> ApplyGate::time_limit() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!pace_.on_trial() || inside_.size() < 2) return std::nullopt;
  return std::chrono::ceil<std::chrono::milliseconds>(kTrialTimes * typical_) + kTrialTime;
}

void ApplyGate::Committed(Ticket ticket, size_t events, TimePoint now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  int running = Running(now);
  if (!Counts(*ticket, now)) ++running;
  const auto took = now - ticket->since;
  typical_ = typical_.count() == 0 ? took : (typical_ + took) / 2;
  pace_.Committed(events, running, took, now);
  ticket->since = now;
  // What a batch has to do yet is shared with those that are in now.
  ticket->shared = inside_.size() > 1;
}

bool ApplyGate::Conflicted(Ticket ticket, TimePoint now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!ticket->shared) return false;
  while (!conflicts_.empty() &&
         (now - conflicts_.front() >= kRemembered || conflicts_.size() >= kMostConflicts)) {
    conflicts_.pop_front();
  }
  conflicts_.push_back(now);
  pace_.Conflicted(now);
  return true;
}

bool ApplyGate::HasTurn(Ticket ticket, TimePoint waits_since) const {
  const auto now = std::chrono::steady_clock::now();
  if (turns_.front() != ticket || Running(now) > 0) return false;
  const bool alone =
      std::all_of(inside_.begin(), inside_.end(), [](const Pass& pass) { return pass.waits; });
  return alone ||
         now - waits_since >= std::clamp<TimePoint::duration>(3 * typical_, kLeastWait, kMostWait);
}

bool ApplyGate::AwaitTurn(Ticket ticket) {
  std::unique_lock<std::mutex> lock(mutex_);
  ticket->waits = true;
  turns_.push_back(ticket);
  changed_.notify_all();
  const auto since = std::chrono::steady_clock::now();
  while (!stopped_ && !HasTurn(ticket, since)) changed_.wait_for(lock, kLong);
  turns_.erase(std::find(turns_.begin(), turns_.end(), ticket));
  ticket->waits = false;
  ticket->since = std::chrono::steady_clock::now();
  ticket->shared = false;
  changed_.notify_all();
  return !stopped_;
}

void ApplyGate::Stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
}

int ApplyGate::conflicts(TimePoint now) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int>(std::count_if(conflicts_.begin(), conflicts_.end(),
                                        [&](TimePoint at) { return now - at < kRemembered; }));
}

}  // namespace postbox::puller

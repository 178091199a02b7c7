#include "worker/publisher/policy/outages.h"

#include <utility>

namespace postbox::publisher {

bool Outages::Waits(const Failing& failing) {
  if (failing.waits) {
    waited_at_[failing.publication] = now_;
    return true;
  }
  const auto found = waited_at_.find(failing.publication);
  if (found == waited_at_.end() || now_ >= After(found->second, kCalm)) return false;
  next_look_ = std::min(next_look_, After(found->second, kCalm));
  return true;
}

bool Outages::Look(Moment now, std::vector<Failing> failing, std::chrono::milliseconds forgotten) {
  now_ = now;
  next_look_ = kNever;
  if (failing.empty()) waited_at_.clear();
  std::erase_if(failing, [&](const Failing& one) {
    if (!Waits(one) || now_ > After(one.next_try, forgotten)) return true;
    const Moment begins = After(one.since, kPatience);
    if (now_ < begins) next_look_ = std::min(next_look_, begins);
    return now_ < begins;
  });
  for (Failing& one : failing) one.waits = true;
  const bool changed = failing != outages_;
  if (failing.empty() && !outages_.empty()) ended_at_ = now_;
  outages_ = std::move(failing);
  return changed;
}

std::optional<Outages::Line> Outages::TakeLine(
    const std::function<bool(const std::string&)>& is_ours, TimeScale scaled) {
  if (outages_.empty()) return TakeEnd();
  std::optional<Line> line;
  if (now_ >= next_line_) {
    next_line_ = After(now_, scaled(kLineInterval));
    const bool begins = logged_.empty();
    const Failing* first = nullptr;
    for (const Failing& one : outages_) {
      if (!is_ours(one.publication)) continue;
      logged_.insert(one.publication);
      if (first == nullptr) first = &one;
    }
    if (first != nullptr) {
      if (begins) logged_since_ = first->since;
      line = {begins ? Line::Kind::kBegins : Line::Kind::kGoesOn, logged_, *first, {}};
    }
  }
  next_look_ = std::min(next_look_, next_line_);
  return line;
}

std::optional<Outages::Line> Outages::TakeEnd() {
  if (ended_at_ == 0) return std::nullopt;
  const Moment calm_at = After(ended_at_, kCalm);
  if (now_ < calm_at) {
    next_look_ = std::min(next_look_, calm_at);
    return std::nullopt;
  }
  const auto lasted = std::chrono::floor<std::chrono::seconds>(Between(logged_since_, ended_at_));
  ended_at_ = 0;
  next_line_ = 0;
  if (logged_.empty()) return std::nullopt;
  return Line{Line::Kind::kEnds, std::exchange(logged_, {}), {}, lasted};
}

}  // namespace postbox::publisher

#include "worker/cli/audit/row_comparison.h"

#include <algorithm>
#include <utility>

namespace postbox::cli {
namespace {

std::string PlaceOf(const std::string& target, const SourceEvent& event) {
  return target + '\0' + KeyOf(event);
}

bool IsOlder(const SourceEvent& event, const SourceEvent& other) {
  return event.version.value_or(0) < other.version.value_or(0);
}

bool HasRow(const SourceEvent& event, const Arrivals& arrivals) {
  const auto arrival = arrivals.find(event.id);
  return arrival != arrivals.end() &&
         (arrival->second.outcome == "applied" || arrival->second.outcome == "stale");
}

}  // namespace

void RowComparison::See(const SourceEvent& event) {
  const auto targets = targets_.find(event.event_type);
  if (targets == targets_.end()) return;
  for (const std::string& target : targets->second) {
    const auto doubt = doubts_.find(PlaceOf(target, event));
    if (doubt != doubts_.end() && IsOlder(doubt->second.event, event)) doubts_.erase(doubt);
  }
}

std::map<std::string, std::vector<DoubtfulRow>> RowComparison::ByTarget() const {
  std::map<std::string, std::vector<DoubtfulRow>> found;
  for (const auto& [place, doubt] : doubts_) found[doubt.found.target].push_back(doubt);
  return found;
}

std::vector<std::string> RowComparison::TypesOf(const std::string& target) const {
  std::vector<std::string> types;
  for (const auto& [type, targets] : targets_) {
    if (std::find(targets.begin(), targets.end(), target) != targets.end()) types.push_back(type);
  }
  return types;
}

void RowComparison::Drop(const DoubtfulRow& doubt) {
  doubts_.erase(PlaceOf(doubt.found.target, doubt.event));
}

void RowComparison::Thinned() {
  crowded_at_ = std::max(kCrowded, doubts_.size() + (kMostDoubts - doubts_.size()) / 2);
}

void RowComparison::Resume(const std::vector<DoubtfulRow>& doubts) {
  for (const DoubtfulRow& doubt : doubts) doubts_[PlaceOf(doubt.found.target, doubt.event)] = doubt;
}

std::vector<SourceEvent> RowComparison::Last(const std::vector<SourceEvent>& page,
                                             const Arrivals& arrivals) {
  last_.clear();
  for (const SourceEvent& event : page) {
    const auto targets = targets_.find(event.event_type);
    if (targets == targets_.end()) continue;
    See(event);
    for (const std::string& target : targets->second) {
      SourceEvent& last = last_[PlaceOf(target, event)];
      if (last.id.empty() || IsOlder(last, event)) last = event;
    }
  }
  std::map<std::string, SourceEvent> events;  // by id: one event may be the last for two targets
  for (const auto& [place, event] : last_) {
    if (event.version && HasRow(event, arrivals)) events.emplace(event.id, event);
  }
  std::vector<SourceEvent> wanted;
  for (auto& [id, event] : events) wanted.push_back(std::move(event));
  compared_ += static_cast<int64_t>(wanted.size());
  return wanted;
}

void RowComparison::Take(const std::vector<SourceEvent>& events,
                         const std::vector<ComparedRow>& found) {
  for (const ComparedRow& row : found) {
    const SourceEvent& event = events.at(row.number);
    if (row.problem == "unchecked") {
      if (reasons_.size() < kMostReasons) {
        reasons_.insert((row.target.empty() ? "" : row.target + ": ") + row.details);
      }
      continue;
    }
    const std::string place = PlaceOf(row.target, event);
    const auto last = last_.find(place);
    if (last != last_.end() && last->second.id == event.id) doubts_[place] = {event, row};
  }
}

std::vector<SourceEvent> RowComparison::TakeDoubts() {
  std::vector<SourceEvent> events;
  std::set<std::string> taken;
  last_.clear();
  for (const auto& [place, doubt] : doubts_) {
    last_[place] = doubt.event;
    if (taken.insert(doubt.event.id).second) events.push_back(doubt.event);
  }
  doubts_.clear();
  return events;
}

std::vector<DoubtfulRow> RowComparison::doubts() const {
  std::vector<DoubtfulRow> rows;
  for (const auto& [place, doubt] : doubts_) rows.push_back(doubt);
  return rows;
}

}  // namespace postbox::cli

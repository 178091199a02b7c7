#include "worker/cli/audit/event_comparison.h"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <utility>

namespace postbox::cli {
namespace {

constexpr char kWaiting[] = "waiting";

bool IsOneOf(const std::string& kind, std::initializer_list<const char*> kinds) {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

// In the inbox for good.
bool IsSettled(const std::string& kind) {
  return IsOneOf(kind, {"applied", "stale", "ignored", "duplicate", "discarded", "expired"});
}

std::string Text(const std::optional<int64_t>& version) {
  return version ? std::to_string(*version) : "none";
}

// Which fields differ; empty if none does.
std::string Differing(const SourceEvent& event, const Arrival& arrival) {
  std::string differing;
  const auto compare = [&](const char* field, const std::string& emitted,
                           const std::string& received) {
    if (emitted == received) return;
    differing += (differing.empty() ? "" : "; ") + std::string(field) + " was emitted as " +
                 emitted + " and received as " + received;
  };
  compare("aggregate_type", event.aggregate_type, arrival.aggregate_type);
  compare("aggregate_id", event.aggregate_id, arrival.aggregate_id);
  compare("event_type", event.event_type, arrival.event_type);
  compare("version", Text(event.version), Text(arrival.version));
  return differing;
}

UnsettledEvent Judge(const SourceEvent& event, const Arrivals& arrivals) {
  UnsettledEvent judged;
  judged.event = event;
  const auto arrival = arrivals.find(event.id);
  if (arrival != arrivals.end()) {
    judged.kind = arrival->second.outcome;
    judged.detail = Differing(event, arrival->second);
    if (!judged.detail.empty()) judged.kind = "altered";
    if (judged.kind == "hole") judged.detail = arrival->second.detail;
  } else if (event.state == "published") {
    judged.kind = kWaiting;
  } else {
    judged.kind = event.state == "parked" ? "parked_at_source" : event.state;
  }
  return judged;
}

}  // namespace

int64_t TimeOf(const std::string& id, int64_t occurred) {
  // 8-4-4: the first 48 bits are milliseconds, the next 4 the version.
  if (id.size() != 36 || id[14] != '7') return occurred;
  const std::string digits = id.substr(0, 8) + id.substr(9, 4);
  return std::max<int64_t>(occurred, std::strtoll(digits.c_str(), nullptr, 16) * 1000);
}

void UnrecordedEvents::Add(const SourceEvent& event) {
  ++count;
  last = std::max(last, TimeOf(event.id, event.occurred));
}

bool IsDifference(const std::string& kind) {
  return IsUnaccounted(kind) && !IsOneOf(kind, {"pending", "in_flight", "unrecorded"});
}

bool IsUnaccounted(const std::string& kind) {
  return !IsSettled(kind) && kind != "gone" && kind != "hole";
}

void EventComparison::Keep(UnsettledEvent unsettled) {
  tally_.Add(unsettled.kind, unsettled.event.occurred);
  by_key_[KeyOf(unsettled.event)].insert(unsettled.event.id);
  unsettled_[unsettled.event.id] = std::move(unsettled);
}

void EventComparison::Drop(const std::string& id) {
  const auto found = unsettled_.find(id);
  if (found == unsettled_.end()) return;
  tally_.Remove(found->second.kind, found->second.event.occurred);
  const auto key = by_key_.find(KeyOf(found->second.event));
  key->second.erase(id);
  if (key->second.empty()) by_key_.erase(key);
  unsettled_.erase(found);
}

void EventComparison::Resume(std::vector<UnsettledEvent> unsettled, int64_t newest) {
  newest_ = newest;
  for (UnsettledEvent& one : unsettled) {
    one.certain = true;
    Keep(std::move(one));
  }
}

void EventComparison::NoteReceived(const SourceEvent& event) {
  newest_ = std::max(newest_, event.place);
  if (unsettled_.empty() || !event.version) return;
  const auto key = by_key_.find(KeyOf(event));
  if (key == by_key_.end()) return;
  for (const std::string& id : key->second) {
    UnsettledEvent& earlier = unsettled_.at(id);
    if (earlier.event.version && *earlier.event.version < *event.version) earlier.skipped = true;
  }
}

bool EventComparison::OnlyNoted(const UnsettledEvent& judged) {
  if (judged.kind == kWaiting && IsUnrecorded(judged)) {
    tally_.Add("unrecorded", judged.event.occurred);
    unrecorded_.Add(judged.event);
    return true;
  }
  if (judged.kind == "pending" && may_leave_out_) {
    left_out_.Add(judged.event);
    return true;
  }
  return false;
}

void EventComparison::TakeOne(const SourceEvent& event, const Arrivals& arrivals) {
  UnsettledEvent judged = Judge(event, arrivals);
  const auto before = unsettled_.find(event.id);
  const bool again = before != unsettled_.end();
  if (again) {
    judged.skipped = before->second.skipped;
    judged.certain = before->second.certain;
    Drop(event.id);
  }
  if (arrivals.contains(event.id)) NoteReceived(event);
  if (IsSettled(judged.kind)) {
    if (again) counted_.insert(event.id);
    if (again || counted_.erase(event.id) == 0) tally_.Add(judged.kind, event.occurred);
  } else if (again || unsettled_.size() < kMostKept || !OnlyNoted(judged)) {
    Keep(std::move(judged));
  }
}

void EventComparison::Take(const std::vector<SourceEvent>& events, const Arrivals& arrivals) {
  for (const SourceEvent& event : events) TakeOne(event, arrivals);
}

void EventComparison::TakeAgain(const std::vector<std::string>& ids,
                                const std::vector<SourceEvent>& events, const Arrivals& arrivals) {
  std::set<std::string> gone(ids.begin(), ids.end());
  for (const SourceEvent& event : events) {
    gone.erase(event.id);
    if (unsettled_.contains(event.id)) TakeOne(event, arrivals);
  }
  for (const std::string& id : gone) {
    const auto found = unsettled_.find(id);
    if (found == unsettled_.end()) continue;
    tally_.Add("gone", found->second.event.occurred);
    Drop(id);
  }
}

bool EventComparison::IsUnrecorded(const UnsettledEvent& waiting) const {
  const SourceEvent& event = waiting.event;
  const int64_t emitted = std::max(TimeOf(event.id, event.occurred), emitted_from_);
  return !waiting.certain && emitted < recorded_from_;
}

std::string EventComparison::KindOfWaiting(const UnsettledEvent& waiting, bool held,
                                           bool excused) const {
  if (IsUnrecorded(waiting)) return "unrecorded";
  if (held) return "late";
  if (waiting.skipped) return "skipped";
  if (excused) return "late";
  if (waiting.event.place <= newest_) return "missing";
  return newest_ > newest_before_ ? "in_flight" : "late";
}

void EventComparison::Finish(const std::string& excuse,
                             const std::map<std::string, std::string>& by_type) {
  // The puller holds events of these types, and behind each of them the later ones of its key.
  std::map<std::string, std::pair<int64_t, std::string>> held;  // the first place, by key
  for (const auto& [id, unsettled] : unsettled_) {
    const auto type = by_type.find(unsettled.event.event_type);
    if (unsettled.kind != kWaiting || type == by_type.end()) continue;
    const auto [first, fresh] =
        held.try_emplace(KeyOf(unsettled.event), unsettled.event.place, type->second);
    if (!fresh && unsettled.event.place < first->second.first) {
      first->second = {unsettled.event.place, type->second};
    }
  }
  for (auto& [id, unsettled] : unsettled_) {
    if (unsettled.kind != kWaiting) continue;
    const auto before = held.find(KeyOf(unsettled.event));
    const bool waits = before != held.end() && unsettled.event.place >= before->second.first;
    tally_.Remove(kWaiting, unsettled.event.occurred);
    unsettled.kind = KindOfWaiting(unsettled, waits, !excuse.empty());
    tally_.Add(unsettled.kind, unsettled.event.occurred);
    if (unsettled.kind == "unrecorded") unrecorded_.Add(unsettled.event);
    if (unsettled.kind != "late") continue;
    unsettled.detail = waits             ? before->second.second
                       : !excuse.empty() ? excuse
                                         : "nothing that was published after it has been received";
  }
}

void BacklogLeft::Add(const SourceEvent& event) {
  ++count;
  place = std::min(place, event.place - 1);
  if (event.occurred > 0 && (occurred == 0 || event.occurred < occurred)) occurred = event.occurred;
}

void EventComparison::LeaveOutTail() {
  std::map<int64_t, std::vector<std::string>> tail;  // ids by place
  for (const auto& [id, unsettled] : unsettled_) {
    const bool unread = unsettled.kind == kWaiting || unsettled.kind == "pending";
    if (unread && !unsettled.certain && unsettled.event.place > newest_) {
      tail[unsettled.event.place].push_back(id);
    }
  }
  size_t awaited = 0;
  for (const auto& [place, ids] : tail) {
    if (awaited < kMostAwaited) {
      awaited += ids.size();
      continue;
    }
    for (const std::string& id : ids) {
      left_out_.Add(unsettled_.at(id).event);
      Drop(id);
    }
  }
}

std::vector<std::string> EventComparison::Unsettled() const {
  std::vector<std::string> ids;
  for (const auto& [id, unsettled] : unsettled_) ids.push_back(id);
  return ids;
}

std::vector<std::string> EventComparison::Waiting() const {
  std::vector<std::string> ids;
  for (const auto& [id, unsettled] : unsettled_) {
    if (unsettled.kind == kWaiting) ids.push_back(id);
  }
  return ids;
}

}  // namespace postbox::cli

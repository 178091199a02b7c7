#include "worker/publisher/delivery/in_flight.h"

#include "worker/publisher/source/event_spans.h"

namespace postbox::publisher {

void InFlight::Add(Events events, const std::string& publication, std::uint64_t wait_for,
                   std::int64_t now) {
  if (events.empty()) return;
  StandbyQueue::Messages unsafe;
  const bool safe = wait_for == 0 && standby_queue_.empty();
  StandbyQueue::Messages& messages = safe ? waiting_ : unsafe;
  for (EventPointer& event : events) {
    messages.push_back(event.get());
    if (free_places_.empty()) {
      event->place = static_cast<std::uint32_t>(events_.size());
      events_.push_back(std::move(event));
      continue;
    }
    event->place = free_places_.back();
    free_places_.pop_back();
    events_[event->place] = std::move(event);
  }
  if (!safe) standby_queue_.Add(publication, wait_for, now, std::move(unsafe));
}

void InFlight::HandOver(pubsub::Publisher* client, std::uint64_t confirmed) {
  if (!standby_queue_.empty()) {
    const StandbyQueue::Messages safe = standby_queue_.TakeSafe(confirmed);
    waiting_.insert(waiting_.end(), safe.begin(), safe.end());
  }
  if (handed_over_ < waiting_.size()) {
    handed_over_ += client->Publish(std::span(waiting_).subspan(handed_over_));
  }
  if (handed_over_ == waiting_.size()) ForgetHandedOver();
}

void InFlight::StopHandOver() {
  standby_queue_.Clear();
  ForgetHandedOver();
}

void InFlight::ForgetHandedOver() {
  waiting_.clear();
  handed_over_ = 0;
}

Events InFlight::TakeResults(pubsub::Publisher* client) { return TakeOut(client->TakeResults()); }

Events InFlight::TakeUnsafe(std::int64_t now, std::int64_t most) {
  return TakeOut(standby_queue_.GiveBack(now, most));
}

Events InFlight::TakeOut(const std::vector<pubsub::OutgoingMessage*>& messages) {
  Events events;
  events.reserve(messages.size());
  for (std::size_t i = 0; i < messages.size(); ++i) {
    PrefetchResult(messages, i);
    auto* event = static_cast<ClaimedEvent*>(messages[i]);
    if (event->traced) AddCreateSpan(event);
    free_places_.push_back(event->place);
    events.push_back(std::move(events_[event->place]));
  }
  return events;
}

Events InFlight::TakeAll() {
  Events events;
  for (EventPointer& event : events_) {
    if (event != nullptr) events.push_back(std::move(event));
  }
  events_.clear();
  free_places_.clear();
  return events;
}

}  // namespace postbox::publisher

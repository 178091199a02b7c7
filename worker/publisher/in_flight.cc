#include "worker/publisher/in_flight.h"

#include "extension/shared/settings.h"
#include "proto/rules/fair_share.h"

namespace postbox::publisher {

bool InFlight::Room(std::size_t batch_size, const Holding& held, bool proven,
                    ClaimLimits* limits) const {
  const auto max_events = static_cast<std::size_t>(settings().max_outstanding_messages);
  const std::size_t max_bytes = static_cast<std::size_t>(settings().max_outstanding_bytes) * 1024;
  const std::size_t batch = std::min(batch_size, max_events);
  limits->events = batch;
  limits->bytes = max_bytes;
  if (unsettled_.events == 0) return true;
  if (handed_over_ < waiting_.size()) return false;
  if (!proven && publications_ > 1 &&
      held.events >= pubsub::Guaranteed(max_events, publications_)) {
    return false;
  }
  const std::size_t events =
      pubsub::MayTake(max_events, publications_, unsettled_.events, held.events);
  const std::size_t bytes = pubsub::MayTake(max_bytes, publications_, unsettled_.bytes, held.bytes);
  limits->events = std::min(batch, events);
  limits->bytes = bytes;
  if (events == 0 || bytes == 0) return false;
  // Not in crumbs: wait until a whole batch fits, or a good part of the budget is free.
  return held.events == 0 ||
         (limits->events >= std::min(batch, std::max(max_events / 4, std::size_t{1})) &&
          limits->bytes * 8 >= max_bytes);
}

void InFlight::Add(Events events, Holding* holding) {
  unsettled_.events += events.size();
  holding->events += events.size();
  for (EventPointer& event : events) {
    unsettled_.bytes += event->bytes();
    holding->bytes += event->bytes();
    waiting_.push_back(event.get());
    if (free_places_.empty()) {
      event->place = events_.size();
      events_.push_back(std::move(event));
      continue;
    }
    event->place = free_places_.back();
    free_places_.pop_back();
    events_[event->place] = std::move(event);
  }
}

void InFlight::HandOver(pubsub::Publisher* client) {
  if (handed_over_ < waiting_.size()) {
    handed_over_ += client->Publish(std::span(waiting_).subspan(handed_over_));
  }
  if (handed_over_ == waiting_.size()) StopHandOver();
}

void InFlight::StopHandOver() {
  waiting_.clear();
  handed_over_ = 0;
}

Events InFlight::TakeResults(pubsub::Publisher* client) {
  const std::vector<pubsub::OutgoingMessage*> results = client->TakeResults();
  Events events;
  events.reserve(results.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    PrefetchResult(results, i);
    const auto* event = static_cast<const ClaimedEvent*>(results[i]);
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

void InFlight::Settled(std::size_t events, std::size_t bytes, Holding* holding) {
  unsettled_.events -= events;
  unsettled_.bytes -= bytes;
  holding->events -= events;
  holding->bytes -= bytes;
}

}  // namespace postbox::publisher

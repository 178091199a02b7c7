#include "worker/publisher/in_flight.h"

#include "extension/shared/settings.h"
#include "proto/rules/fair_share.h"
#include "proto/rules/limits.h"

namespace postbox::publisher {

namespace {

// An event that is larger than what is left of the budget may exceed it by this part of it, or by
// the largest message and its row: else it would wait until nothing at all is in flight, which may
// never be so while others publish, or while a topic does not answer.
constexpr std::size_t kOverhang = 8;
constexpr std::size_t kLargestEvent = pubsub::kMaxRequestBytes + pubsub::kMaxRequestBytes / 10;

}  // namespace

bool InFlight::Room(std::size_t batch_size, const Holding& held, bool keep,
                    ClaimLimits* limits) const {
  const auto part = [&](std::size_t all) { return keep ? all - all / 4 : all; };
  const std::size_t max_events =
      part(static_cast<std::size_t>(settings().max_outstanding_messages));
  const std::size_t max_bytes =
      part(static_cast<std::size_t>(settings().max_outstanding_bytes) * 1024);
  const std::size_t batch = std::min(batch_size, max_events);
  limits->events = batch;
  limits->bytes = max_bytes;
  limits->first = std::numeric_limits<std::size_t>::max();
  if (unsettled_.events == 0) return true;
  const std::size_t most = max_bytes + std::max(max_bytes / kOverhang, kLargestEvent);
  limits->first = most - std::min(most, unsettled_.bytes);
  if (handed_over_ < waiting_.size()) return false;
  limits->events = std::min(batch, Left(max_events, &Holding::events, held));
  limits->bytes = Left(max_bytes, &Holding::bytes, held);
  if (limits->events == 0 || limits->bytes == 0) return false;
  if (held.events == 0) return true;
  // Not in crumbs: wait until a whole batch fits, or a good part of the budget is free.
  const std::size_t most_bytes =
      held.proven ? max_bytes : pubsub::Guaranteed(max_bytes, publications_.size());
  return limits->events >= std::min(batch, std::max(max_events / 4, std::size_t{1})) &&
         limits->bytes * 8 >= most_bytes;
}

std::size_t InFlight::Left(std::size_t places, std::size_t Holding::*of,
                           const Holding& held) const {
  const std::size_t users = publications_.size();
  std::size_t all = unsettled_.*of;
  if (users <= 1) return pubsub::MayTake(places, users, all, held.*of);
  const std::size_t guaranteed = pubsub::Guaranteed(places, users);
  if (!held.proven) return guaranteed - std::min(guaranteed, held.*of);
  for (const auto& other : publications_) {
    if (!other->proven) all -= std::min((*other).*of, guaranteed);
  }
  return pubsub::MayTake(places, users, all, held.*of);
}

void InFlight::Add(Events events, Holding* holding, const std::string& publication,
                   std::uint64_t wait_for, std::int64_t now) {
  if (events.empty()) return;
  StandbyQueue::Messages unsafe;
  const bool safe = wait_for == 0 && standby_queue_.empty();
  StandbyQueue::Messages& messages = safe ? waiting_ : unsafe;
  unsettled_.events += events.size();
  holding->events += events.size();
  for (EventPointer& event : events) {
    unsettled_.bytes += event->bytes();
    holding->bytes += event->bytes();
    messages.push_back(event.get());
    if (free_places_.empty()) {
      event->place = events_.size();
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
    const auto* event = static_cast<const ClaimedEvent*>(messages[i]);
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

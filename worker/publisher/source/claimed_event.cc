// See claimed_event.h.
#include "worker/publisher/source/claimed_event.h"

namespace postbox::publisher {

namespace {

constexpr std::size_t kMostSpare = 20'000;
// The room of a larger message is given back, and what all spare events have beyond this.
constexpr std::size_t kMostRoom = 4096;
constexpr std::size_t kMostRoomOfAll = std::size_t{16} << 20;

// Never destroyed: events are given back until the process is gone.
std::vector<ClaimedEvent*>& spare = *new std::vector<ClaimedEvent*>;
std::size_t spare_room = 0;  // of their messages

}  // namespace

EventPointer NewEvent() {
  if (spare.empty()) {
    // Room beforehand: giving an event back must not fail.
    spare.reserve(kMostSpare);
    return EventPointer(new ClaimedEvent);
  }
  EventPointer event(spare.back());
  spare.pop_back();
  spare_room -= event->encoded.capacity();
  // They have left the caches meanwhile.
  if (spare.size() >= pubsub::kFetchAhead) {
    pubsub::PrefetchObjectForWrite(spare[spare.size() - pubsub::kFetchAhead]);
    pubsub::PrefetchTextForWrite(spare.back()->encoded);
  }
  for (std::string* text : {&event->encoded, &event->ordering_key, &event->key, &event->id}) {
    text->clear();
  }
  event->topic = {};
  event->status = pubsub::PublishStatus::kUnknown;
  event->send_by = std::chrono::steady_clock::time_point::max();
  event->attempts = 0;
  event->parked = false;
  event->urgent = false;
  event->maybe_taken = false;
  event->traced = false;
  event->sent_again = 0;
  event->seq = 0;
  event->occurred_at = 0;
  event->meter = 0;
  event->handle = 0;
  event->leaving = false;
  return event;
}

// Only what cannot wait: the next use sets everything else.
void RecycleEvent::operator()(ClaimedEvent* event) const noexcept {
  if (spare.size() >= kMostSpare) {
    delete event;
    return;
  }
  const std::size_t room = event->encoded.capacity();
  if (room > kMostRoom || spare_room + room > kMostRoomOfAll) std::string().swap(event->encoded);
  if (event->status != pubsub::PublishStatus::kPublished) std::string().swap(event->error);
  event->owner.reset();
  event->extras.reset();
  spare_room += event->encoded.capacity();
  spare.push_back(event);
}

}  // namespace postbox::publisher

// See claimed_event.h.
#include "worker/publisher/base/claimed_event.h"

namespace postbox::publisher {

namespace {

constexpr std::size_t kMostSpare = 20'000;
// The room of a larger message is given back.
constexpr std::size_t kMostRoom = 4096;

// Never destroyed: events are given back until the process is gone.
std::vector<ClaimedEvent*>& spare = *new std::vector<ClaimedEvent*>;

}  // namespace

EventPointer NewEvent() {
  if (spare.empty()) {
    // Room beforehand: giving an event back must not fail.
    spare.reserve(kMostSpare);
    return EventPointer(new ClaimedEvent);
  }
  EventPointer event(spare.back());
  spare.pop_back();
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
  event->attempts = 0;
  event->parked = false;
  event->seq = 0;
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
  if (event->encoded.capacity() > kMostRoom) std::string().swap(event->encoded);
  if (event->status != pubsub::PublishStatus::kPublished) std::string().swap(event->error);
  event->owner.reset();
  spare.push_back(event);
}

}  // namespace postbox::publisher

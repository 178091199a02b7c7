// See event.h.
#include "worker/publisher/event.h"

namespace postbox::publisher {

namespace {

constexpr std::size_t kMostSpare = 20'000;
// The room of larger texts is given back.
constexpr std::size_t kMostRoom = 4096;

// Never destroyed: events are given back until the process is gone.
std::vector<Event*>& spare = *new std::vector<Event*>;

void Clear(std::string* text) {
  if (text->capacity() > kMostRoom) {
    std::string().swap(*text);
  } else {
    text->clear();
  }
}

}  // namespace

EventPointer NewEvent() {
  if (spare.empty()) {
    // Room beforehand: giving an event back must not fail.
    spare.reserve(kMostSpare);
    return EventPointer(new Event);
  }
  EventPointer event(spare.back());
  spare.pop_back();
  return event;
}

void RecycleEvent::operator()(Event* event) const noexcept {
  if (spare.size() >= kMostSpare) {
    delete event;
    return;
  }
  for (std::string* text :
       {&event->id, &event->key, &event->ordering_key, &event->encoded, &event->error}) {
    Clear(text);
  }
  event->topic = {};
  event->status = pubsub::PublishStatus::kUnknown;
  event->attempts = 0;
  event->seq = 0;
  event->handle = 0;
  event->leaving = false;
  event->owner.reset();
  spare.push_back(event);
}

}  // namespace postbox::publisher

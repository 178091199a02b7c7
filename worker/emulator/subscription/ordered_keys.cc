#include "worker/emulator/subscription/ordered_keys.h"

namespace postbox::emulator {

void OrderedKeys::Push(Entry* entry) {
  const std::string& name = entry->message->ordering_key;
  std::unique_ptr<OrderedKey>& key = keys_[name];
  if (key == nullptr) key = std::make_unique<OrderedKey>(name, deliver_twice_);
  entry->key = key.get();
  key->Push(entry);
  Settle(key.get());
}

OrderedKey* OrderedKeys::Next(const StreamState* stream) const {
  if (stream != nullptr && !stream->ready_keys.empty()) return stream->ready_keys.front();
  return ready_.empty() ? nullptr : ready_.front();
}

void OrderedKeys::Return(Entry* entry, absl::Time retry_at) {
  OrderedKey* key = entry->key;
  key->Rewind(*entry, [this](Entry* later) {
    if (later->state == Entry::State::kLeased) {
      leases_.End(later);
    } else {
      entries_.MarkUnacked(later);
    }
    later->lease = 0;
  });
  Suspend(key, retry_at);
  Settle(key);
}

void OrderedKeys::Remove(Entry* entry) {
  OrderedKey* key = entry->key;
  key->Remove(*entry);
  Settle(key);
}

void OrderedKeys::Suspend(OrderedKey* key, absl::Time until) {
  absl::Time& retry_at = key->place().retry_at;
  if (retry_at != absl::InfinitePast()) suspended_.erase({retry_at, key->name()});
  retry_at = until;
  if (until != absl::InfinitePast()) suspended_.emplace(std::pair(until, key->name()), key);
}

void OrderedKeys::Unplace(OrderedKey* key) {
  OrderedKey::Place& place = key->place();
  if (place.list == nullptr) return;
  place.list->erase(place.at);
  place.list = nullptr;
}

void OrderedKeys::Unplace(KeyList* ready_keys) {
  while (!ready_keys->empty()) Unplace(ready_keys->front());
}

KeyList* OrderedKeys::ListOf(const OrderedKey& key, absl::Time retry_at) {
  if (!key.HasWork() || retry_at != absl::InfinitePast()) return nullptr;
  if (!key.leased()) return &ready_;
  StreamState* owner = streams_.Find(key.owner());
  return owner == nullptr ? nullptr : &owner->ready_keys;
}

void OrderedKeys::Settle(OrderedKey* key) {
  key->RepeatIfDue([this](Entry* entry) { entries_.MarkUnacked(entry); });
  while (Entry* done = key->PopDone()) entries_.Release(done);
  if (key->empty()) {
    Unplace(key);
    Suspend(key, absl::InfinitePast());
    keys_.erase(std::string(key->name()));  // a copy: the argument must outlive the key
    return;
  }
  OrderedKey::Place& place = key->place();
  KeyList* target = ListOf(*key, place.retry_at);
  if (place.list == target) return;
  Unplace(key);
  if (target == nullptr) return;
  place.at = target->insert(target->end(), key);
  place.list = target;
}

void OrderedKeys::Resume(absl::Time now) {
  while (!suspended_.empty() && next_resume() <= now) {
    OrderedKey* key = suspended_.begin()->second;
    Suspend(key, absl::InfinitePast());
    Settle(key);
  }
}

void OrderedKeys::Clear() {
  ready_.clear();
  suspended_.clear();
  keys_.clear();
}

}  // namespace postbox::emulator

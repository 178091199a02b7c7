// The queues of a subscription: what waits in which queue, how they change with the time, and how a
// seek builds them again. The states and invariants are in subscription.h.
#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "worker/emulator/subscription/subscription.h"

namespace postbox::emulator {

void Subscription::Wait(Entry* entry, absl::Time retry_at) {
  if (entry->key == nullptr) {
    if (retry_at == absl::InfinitePast()) {
      entry->ready_at = ready_.insert(ready_.end(), entry);
    } else {
      entry->state = State::kSuspended;
      entry->until = retry_at;
      suspended_.emplace(retry_at, entry->message->sequence);
    }
    return;
  }
  Key* key = entry->key;
  const size_t first = IndexOf(*entry);
  for (size_t i = first; i < key->cursor; ++i) {
    Entry* later = key->entries[i];
    if (later->state == State::kLeased) {
      EndLease(later);
    } else if (later->state == State::kAcked) {
      if (deliver_twice_ && !later->repeated) --key->to_repeat;
      later->state = State::kWaiting;
      ++unacked_;
      Touch(*later);
    }
    later->lease = 0;
  }
  key->cursor = first;
  Suspend(key, retry_at);
  Settle(key);
}

size_t Subscription::IndexOf(const Entry& entry) {
  const auto& entries = entry.key->entries;
  const auto found = std::lower_bound(
      entries.begin(), entries.end(), entry.message->sequence,
      [](const Entry* a, uint64_t sequence) { return a->message->sequence < sequence; });
  return static_cast<size_t>(found - entries.begin());
}

void Subscription::Suspend(Key* key, absl::Time until) {
  if (key->retry_at != absl::InfinitePast()) suspended_keys_.erase({key->retry_at, key->name});
  key->retry_at = until;
  if (until != absl::InfinitePast()) suspended_keys_.emplace(std::pair(until, key->name), key);
}

void Subscription::Unplace(Key* key) {
  if (key->list == nullptr) return;
  key->list->erase(key->at);
  key->list = nullptr;
}

void Subscription::Settle(Key* key) {
  if (key->to_repeat > 0 && key->leased == 0) {
    // All messages before the cursor were acked for the first time. Their second delivery begins.
    for (size_t i = 0; i < key->cursor; ++i) {
      Entry* entry = key->entries[i];
      if (entry->state == State::kAcked) ++unacked_;
      entry->state = State::kWaiting;
      entry->repeated = true;
      Touch(*entry);
    }
    key->to_repeat = 0;
    key->cursor = 0;
  }
  while (!key->entries.empty()) {
    Entry* front = key->entries.front();
    if (front->state != State::kAcked || (deliver_twice_ && !front->repeated)) break;
    key->entries.pop_front();
    --key->cursor;
    front->key = nullptr;
    Touch(*front);
    if (!config_.retain_acked_messages()) entries_.erase(front->message->sequence);
  }
  if (key->entries.empty()) {
    Unplace(key);
    Suspend(key, absl::InfinitePast());
    keys_.erase(std::string(key->name));  // a copy: the argument must outlive the key
    return;
  }
  KeyList* target = nullptr;
  if (key->cursor < key->entries.size() && key->retry_at == absl::InfinitePast() &&
      key->to_repeat == 0) {
    if (key->leased == 0) {
      target = &ready_keys_;
    } else if (auto owner = streams_.find(key->owner); owner != streams_.end()) {
      target = &owner->second->ready_keys;
    }
  }
  if (key->list == target) return;
  Unplace(key);
  if (target == nullptr) return;
  key->at = target->insert(target->end(), key);
  key->list = target;
}

void Subscription::Drop(Entry* entry) {
  const uint64_t sequence = entry->message->sequence;
  Touch(*entry);
  if (entry->state != State::kAcked) --unacked_;
  if (entry->state == State::kLeased) {
    EndLease(entry);
  } else if (entry->state == State::kSuspended) {
    suspended_.erase({entry->until, sequence});
  } else if (entry->state == State::kWaiting && entry->key == nullptr) {
    ready_.erase(entry->ready_at);
  }
  if (Key* key = entry->key; key != nullptr) {
    const size_t index = IndexOf(*entry);
    if (entry->state == State::kAcked && deliver_twice_ && !entry->repeated) --key->to_repeat;
    key->entries.erase(key->entries.begin() + static_cast<std::ptrdiff_t>(index));
    if (index < key->cursor) --key->cursor;
    Settle(key);
  }
  entries_.erase(sequence);
}

// ---- time ----

absl::Duration Subscription::Backoff(const Entry& entry) const {
  if (!config_.has_retry_policy()) return absl::ZeroDuration();
  const absl::Duration least = ToDuration(config_.retry_policy().minimum_backoff());
  const absl::Duration most = ToDuration(config_.retry_policy().maximum_backoff());
  const int doublings = std::min(entry.failures - 1, 20);
  return std::min(most, least * static_cast<double>(int64_t{1} << doublings));
}

absl::Time Subscription::RetentionEnd() const {
  if (entries_.empty()) return absl::InfiniteFuture();
  return entries_.begin()->second->message->published +
         std::max(ToDuration(config_.message_retention_duration()),
                  ToDuration(config_.topic_message_retention_duration()));
}

absl::Time Subscription::next_tick() const {
  absl::Time next = RetentionEnd();
  if (!leases_.empty()) next = std::min(next, leases_.begin()->first);
  if (!suspended_.empty()) next = std::min(next, suspended_.begin()->first);
  if (!suspended_keys_.empty()) next = std::min(next, suspended_keys_.begin()->first.first);
  return next;
}

void Subscription::Tick(absl::Time now) {
  while (RetentionEnd() <= now) Drop(entries_.begin()->second.get());
  // Earlier messages first, so that an expired batch of a key causes one redelivery and not many.
  std::vector<uint64_t> expired;
  for (const auto& [end, sequence] : leases_) {
    if (end > now) break;
    expired.push_back(sequence);
  }
  std::sort(expired.begin(), expired.end());
  for (const uint64_t sequence : expired) {
    const auto found = entries_.find(sequence);
    if (found == entries_.end()) continue;
    Entry* entry = found->second.get();
    if (entry->state != State::kLeased) continue;  // taken back by an earlier one of its key
    ++counters_.expired;
    Fail(entry, now);
  }
  while (!suspended_.empty() && suspended_.begin()->first <= now) {
    Entry* entry = entries_.at(suspended_.begin()->second).get();
    suspended_.erase(suspended_.begin());
    entry->state = State::kWaiting;
    entry->ready_at = ready_.insert(ready_.end(), entry);
  }
  while (!suspended_keys_.empty() && suspended_keys_.begin()->first.first <= now) {
    Key* key = suspended_keys_.begin()->second;
    Suspend(key, absl::InfinitePast());
    Settle(key);
  }
}

// ---- seek ----

void Subscription::Restore(const StoredMessagePtr& message) {
  std::unique_ptr<Entry>& entry = entries_[message->sequence];
  if (entry != nullptr) return;
  entry = std::make_unique<Entry>();
  entry->message = message;
  entry->state = State::kAcked;
}

void Subscription::Seek(absl::Time time, const std::deque<StoredMessagePtr>& retained) {
  for (const StoredMessagePtr& message : retained) {
    if (message->published >= time && FilterMatches(*message)) Restore(message);
  }
  Rebuild([time](const Entry& entry) { return entry.message->published < time; });
}

void Subscription::Seek(const std::vector<StoredMessagePtr>& unacked) {
  absl::flat_hash_set<uint64_t> wanted;
  for (const StoredMessagePtr& message : unacked) {
    if (!FilterMatches(*message)) continue;  // the snapshot may be of another subscription
    wanted.insert(message->sequence);
    Restore(message);
  }
  Rebuild([&wanted](const Entry& entry) { return !wanted.contains(entry.message->sequence); });
}

void Subscription::Rebuild(const std::function<bool(const Entry&)>& acked) {
  for (auto& [sequence, entry] : entries_) {
    if (entry->state == State::kLeased) EndLease(entry.get());
  }
  ready_.clear();
  ready_keys_.clear();
  for (auto& [id, stream] : streams_) stream->ready_keys.clear();
  suspended_.clear();
  suspended_keys_.clear();
  keys_.clear();
  unacked_ = 0;
  for (auto it = entries_.begin(); it != entries_.end();) {
    Entry* entry = it->second.get();
    Touch(*entry);
    entry->key = nullptr;
    entry->lease = 0;
    entry->repeated = false;
    if (!acked(*entry)) {
      ++unacked_;
      Enqueue(entry);
    } else if (config_.retain_acked_messages()) {
      entry->state = State::kAcked;
    } else {
      it = entries_.erase(it);
      continue;
    }
    ++it;
  }
}

void Subscription::Detach() {
  Rebuild([](const Entry&) { return true; });
  entries_.clear();
  config_.set_detached(true);
}

std::vector<StoredMessagePtr> Subscription::Unacked() const {
  std::vector<StoredMessagePtr> unacked;
  for (const auto& [sequence, entry] : entries_) {
    if (entry->state != State::kAcked) unacked.push_back(entry->message);
  }
  return unacked;
}

// ---- restart ----

std::optional<EntryState> Subscription::StateOf(uint64_t sequence) const {
  const auto found = entries_.find(sequence);
  if (found == entries_.end()) return std::nullopt;
  return EntryState{found->second->state == State::kAcked, found->second->failures};
}

void Subscription::Recover(StoredMessagePtr message, const EntryState& state) {
  const uint64_t sequence = message->sequence;
  auto entry = std::make_unique<Entry>();
  entry->message = std::move(message);
  entry->failures = state.failures;
  // An earlier message of the key is delivered again, and with it all later ones.
  const bool again = ordered() && !exactly_once() && keys_.contains(entry->message->ordering_key);
  if (state.acked && !again) {
    entry->state = State::kAcked;
  } else {
    Enqueue(entry.get());
    ++unacked_;
  }
  entries_.emplace_hint(entries_.end(), sequence, std::move(entry));
}

}  // namespace postbox::emulator

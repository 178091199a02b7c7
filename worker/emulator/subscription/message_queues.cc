#include "worker/emulator/subscription/message_queues.h"

#include <algorithm>

namespace postbox::emulator {

void MessageQueues::Enqueue(Entry* entry) {
  entries_.MarkUnacked(entry);
  if (ordered_ && !entry->message->ordering_key.empty()) {
    keys_.Push(entry);
  } else {
    unordered_.PushBack(entry);
  }
}

MessageQueues::Candidate MessageQueues::Next(const StreamState* stream) const {
  Entry* const unordered = unordered_.front();
  OrderedKey* const key = keys_.Next(stream);
  if (key != nullptr && (keys_first_ || unordered == nullptr)) return {key, key->next()};
  return {nullptr, unordered};
}

bool MessageQueues::HasWork(StreamId id) const {
  const StreamState* stream = streams_.Find(id);
  if (stream == nullptr) return false;
  const Candidate next = Next(stream);
  return next.entry != nullptr && stream->Budget().Admits(next.entry->bytes());
}

std::vector<Entry*> MessageQueues::Take(DeliveryBudget budget, const Recipient& recipient) {
  std::vector<Entry*> taken;
  const auto take = [&](Entry* entry) {
    budget.Spend(entry->bytes());
    leases_.Grant(entry, recipient);
    taken.push_back(entry);
  };
  for (;;) {
    const Candidate next = Next(recipient.stream);
    if (next.entry == nullptr || !budget.Admits(next.entry->bytes())) return taken;
    keys_first_ = !keys_first_;
    if (next.key == nullptr) {
      unordered_.PopFront();
      take(next.entry);
      continue;
    }
    for (Entry* entry = next.entry; entry != nullptr && budget.Admits(entry->bytes());
         entry = next.key->next()) {
      next.key->Advance();
      take(entry);
    }
    keys_.Settle(next.key);
  }
}

void MessageQueues::UndoLease(Entry* entry) {
  leases_.End(entry);
  entry->lease = 0;
  if (entry->key != nullptr) {
    keys_.Return(entry, absl::InfinitePast());
  } else {
    unordered_.PushFront(entry);
  }
}

void MessageQueues::EndLease(Entry* entry, absl::Time retry_at) {
  leases_.End(entry);
  if (entry->key != nullptr) {
    keys_.Return(entry, retry_at);
  } else {
    unordered_.Return(entry, retry_at);
  }
}

void MessageQueues::Ack(Entry* entry) {
  if (entry->state == Entry::State::kLeased) {
    leases_.End(entry);
  } else {
    unordered_.Remove(entry);
  }
  entry->lease = 0;
  if (entry->key == nullptr && deliver_twice_ && !entry->repeated) {
    entry->repeated = true;
    Enqueue(entry);
    return;
  }
  entries_.MarkAcked(entry);
  if (entry->key != nullptr) {
    entry->key->NoteAck(*entry);
    keys_.Settle(entry->key);
  } else {
    entries_.Release(entry);
  }
}

void MessageQueues::Drop(Entry* entry) {
  if (entry->state == Entry::State::kLeased) {
    leases_.End(entry);
  } else if (entry->state != Entry::State::kAcked && entry->key == nullptr) {
    unordered_.Remove(entry);
  }
  if (entry->key != nullptr) keys_.Remove(entry);
  entries_.Erase(entry);
}

void MessageQueues::CloseStream(StreamId id, bool give_back) {
  const std::unique_ptr<StreamState> stream = streams_.Close(id);
  if (stream == nullptr) return;
  OrderedKeys::Unplace(&stream->ready_keys);
  if (!give_back) return;
  for (Entry* entry : leases_.HeldBy(id)) {
    // Some are taken back by an earlier one of their key.
    if (entry->state == Entry::State::kLeased) EndLease(entry);
  }
}

void MessageQueues::Resume(absl::Time now) {
  unordered_.Resume(now);
  keys_.Resume(now);
}

absl::Time MessageQueues::next_resume() const {
  return std::min(unordered_.next_resume(), keys_.next_resume());
}

void MessageQueues::Rebuild(absl::FunctionRef<bool(const StoredMessage&)> acked) {
  for (Entry* entry : leases_.EndedBy(absl::InfiniteFuture())) leases_.End(entry);
  unordered_.Clear();
  keys_.Clear();
  streams_.ForgetReadyKeys();
  entries_.Sift([&](Entry* entry) {
    entries_.Touch(*entry);
    entry->key = nullptr;
    entry->lease = 0;
    entry->repeated = false;
    const bool done = acked(*entry->message);
    if (!done) {
      Enqueue(entry);
    } else if (entry->state != Entry::State::kAcked) {
      entries_.MarkAcked(entry);
    }
    return !done;
  });
}

}  // namespace postbox::emulator

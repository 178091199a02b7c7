#include "worker/emulator/subscription/leases.h"

#include <algorithm>

#include "worker/emulator/subscription/ordered_key.h"

namespace postbox::emulator {
namespace {

std::vector<Entry*> BySequence(std::vector<Entry*> entries) {
  std::sort(entries.begin(), entries.end(),
            [](const Entry* a, const Entry* b) { return a->sequence() < b->sequence(); });
  return entries;
}

}  // namespace

void Leases::Grant(Entry* entry, const Recipient& recipient) {
  entry->state = Entry::State::kLeased;
  entry->lease = ++last_;
  entry->until = recipient.lease_end;
  entry->owner = recipient.owner;
  held_.emplace(std::pair(entry->until, entry->sequence()), entry);
  if (recipient.stream != nullptr) {
    ++recipient.stream->messages;
    recipient.stream->bytes += static_cast<int64_t>(entry->bytes());
  }
  if (entry->key != nullptr) entry->key->AddLease(recipient.owner);
}

void Leases::Extend(Entry* entry, absl::Time end) {
  held_.erase({entry->until, entry->sequence()});
  entry->until = end;
  held_.emplace(std::pair(end, entry->sequence()), entry);
}

void Leases::End(Entry* entry) {
  held_.erase({entry->until, entry->sequence()});
  entry->state = Entry::State::kWaiting;
  if (StreamState* stream = streams_.Find(entry->owner); stream != nullptr) {
    --stream->messages;
    stream->bytes -= static_cast<int64_t>(entry->bytes());
  }
  entry->owner = 0;
  if (entry->key != nullptr) entry->key->EndLease();
}

std::vector<Entry*> Leases::EndedBy(absl::Time now) const {
  std::vector<Entry*> ended;
  for (const auto& [end, entry] : held_) {
    if (end.first > now) break;
    ended.push_back(entry);
  }
  return BySequence(std::move(ended));
}

std::vector<Entry*> Leases::HeldBy(StreamId owner) const {
  std::vector<Entry*> held;
  for (const auto& [end, entry] : held_) {
    if (entry->owner == owner) held.push_back(entry);
  }
  return BySequence(std::move(held));
}

}  // namespace postbox::emulator

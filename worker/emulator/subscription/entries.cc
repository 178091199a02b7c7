#include "worker/emulator/subscription/entries.h"

namespace postbox::emulator {

Entry* Entries::Append(StoredMessagePtr message) {
  Entry* entry = Restore(std::move(message), {});
  Touch(*entry);
  return entry;
}

Entry* Entries::Restore(StoredMessagePtr message, const EntryState& saved) {
  const uint64_t sequence = message->sequence;
  const auto at = all_.emplace_hint(all_.end(), sequence, nullptr);
  if (at->second != nullptr) return at->second.get();
  at->second = std::make_unique<Entry>();
  Entry* entry = at->second.get();
  entry->message = std::move(message);
  entry->failures = saved.failures;
  if (saved.acked) {
    entry->state = Entry::State::kAcked;
  } else {
    ++unacked_;
  }
  return entry;
}

Entry* Entries::Find(uint64_t sequence) const {
  const auto found = all_.find(sequence);
  return found == all_.end() ? nullptr : found->second.get();
}

std::vector<StoredMessagePtr> Entries::Unacked() const {
  std::vector<StoredMessagePtr> unacked;
  for (const auto& [sequence, entry] : all_) {
    if (entry->state != Entry::State::kAcked) unacked.push_back(entry->message);
  }
  return unacked;
}

void Entries::MarkAcked(Entry* entry) {
  entry->state = Entry::State::kAcked;
  --unacked_;
  Touch(*entry);
}

void Entries::MarkUnacked(Entry* entry) {
  if (entry->state == Entry::State::kAcked) {
    ++unacked_;
    Touch(*entry);
  }
  entry->state = Entry::State::kWaiting;
}

void Entries::Release(Entry* entry) {
  if (!retain_acked_) Erase(entry);
}

void Entries::Erase(Entry* entry) {
  Touch(*entry);
  if (entry->state != Entry::State::kAcked) --unacked_;
  all_.erase(entry->sequence());
}

void Entries::Sift(absl::FunctionRef<bool(Entry*)> visit) {
  for (auto it = all_.begin(); it != all_.end();) {
    if (visit(it->second.get()) || retain_acked_) {
      ++it;
    } else {
      it = all_.erase(it);
    }
  }
}

void Entries::Clear() {
  all_.clear();
  unacked_ = 0;
}

void Entries::Touch(const Entry& entry) {
  if (remembers_) touched_.push_back(entry.sequence());
}

std::optional<EntryState> Entries::StateOf(uint64_t sequence) const {
  const Entry* entry = Find(sequence);
  if (entry == nullptr) return std::nullopt;
  return EntryState{entry->state == Entry::State::kAcked, entry->failures};
}

}  // namespace postbox::emulator

#include "worker/emulator/subscription/ordered_key.h"

namespace postbox::emulator {

bool OrderedKey::HasUnackedBefore(const Entry& entry) const {
  for (const Entry* earlier : entries_) {
    if (earlier == &entry) return false;
    if (earlier->state != Entry::State::kAcked) return true;
  }
  return false;
}

Entry* OrderedKey::PopDone() {
  if (empty()) return nullptr;
  Entry* front = entries_.front();
  if (front->state != Entry::State::kAcked || IsToRepeat(*front)) return nullptr;
  entries_.pop_front();
  --cursor_;
  front->key = nullptr;
  return front;
}

void OrderedKey::Remove(const Entry& entry) {
  const size_t index = IndexOf(entry);
  if (IsToRepeat(entry)) --to_repeat_;
  entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(index));
  if (index < cursor_) --cursor_;
}

size_t OrderedKey::IndexOf(const Entry& entry) const {
  const auto found =
      std::lower_bound(entries_.begin(), entries_.end(), entry.sequence(),
                       [](const Entry* a, uint64_t sequence) { return a->sequence() < sequence; });
  return static_cast<size_t>(found - entries_.begin());
}

}  // namespace postbox::emulator

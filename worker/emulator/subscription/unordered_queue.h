// The messages of a subscription that wait, or are suspended, without an ordering key.
#ifndef POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_UNORDERED_QUEUE_H_
#define POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_UNORDERED_QUEUE_H_

#include <cstdint>
#include <list>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/time/time.h"
#include "worker/emulator/subscription/entry.h"

namespace postbox::emulator {

class UnorderedQueue {
 public:
  void PushBack(Entry* entry) { entry->place = ready_.insert(ready_.end(), entry); }
  void PushFront(Entry* entry) { entry->place = ready_.insert(ready_.begin(), entry); }
  // Null if none waits.
  Entry* front() const { return ready_.empty() ? nullptr : ready_.front(); }
  void PopFront() { ready_.pop_front(); }

  // The message waits until retry_at; InfinitePast means that it can be delivered again at once.
  void Return(Entry* entry, absl::Time retry_at) {
    if (retry_at == absl::InfinitePast()) return PushBack(entry);
    entry->state = Entry::State::kSuspended;
    entry->until = retry_at;
    suspended_.emplace(std::pair(retry_at, entry->sequence()), entry);
  }
  // Of a message that waits or is suspended.
  void Remove(Entry* entry) {
    if (entry->state == Entry::State::kSuspended) {
      suspended_.erase({entry->until, entry->sequence()});
    } else {
      ready_.erase(entry->place);
    }
  }
  // Ends the suspensions that are over.
  void Resume(absl::Time now) {
    while (!suspended_.empty() && next_resume() <= now) {
      Entry* entry = suspended_.begin()->second;
      suspended_.erase(suspended_.begin());
      entry->state = Entry::State::kWaiting;
      PushBack(entry);
    }
  }
  absl::Time next_resume() const {
    return suspended_.empty() ? absl::InfiniteFuture() : suspended_.begin()->first.first;
  }
  void Clear() {
    ready_.clear();
    suspended_.clear();
  }

 private:
  std::list<Entry*> ready_;
  absl::btree_map<std::pair<absl::Time, uint64_t>, Entry*> suspended_;  // by end and sequence
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_UNORDERED_QUEUE_H_

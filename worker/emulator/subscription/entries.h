// The messages of a subscription by their sequence, how many of them are not acked, and of which
// the saved state may be out of date.
//
// Invariant: backlog and leased messages together are those that are not acked.
#ifndef POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_ENTRIES_H_
#define POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_ENTRIES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/functional/function_ref.h"
#include "worker/emulator/subscription/entry.h"

namespace postbox::emulator {

// The state of a message, as far as it outlives a restart (journal.h).
struct EntryState {
  bool acked = false;
  int failures = 0;
};

class Entries {
 public:
  // What is done with is kept as acked, or erased.
  void RetainAcked(bool retain) { retain_acked_ = retain; }

  // Adds a message that waits. Sequences must ascend.
  Entry* Append(StoredMessagePtr message);
  // Adds a message as it was saved, if it is not there. Its saved state is up to date.
  Entry* Restore(StoredMessagePtr message, const EntryState& saved);

  Entry* Find(uint64_t sequence) const;
  Entry* oldest() const { return all_.empty() ? nullptr : all_.begin()->second.get(); }
  std::vector<StoredMessagePtr> Unacked() const;
  size_t unacked() const { return unacked_; }

  void MarkAcked(Entry* entry);
  // It waits, whatever it was.
  void MarkUnacked(Entry* entry);
  // An acked message that is in no queue any more.
  void Release(Entry* entry);
  void Erase(Entry* entry);
  // Shows every entry to `visit` and releases those for which it returns false.
  void Sift(absl::FunctionRef<bool(Entry*)> visit);
  void Clear();

  // The messages whose state may have changed since the last call of TakeTouched(), once
  // RememberChanges() was called.
  void RememberChanges() { remembers_ = true; }
  void Touch(const Entry& entry);
  std::vector<uint64_t> TakeTouched() { return std::exchange(touched_, {}); }
  std::optional<EntryState> StateOf(uint64_t sequence) const;

 private:
  absl::btree_map<uint64_t, std::unique_ptr<Entry>> all_;
  size_t unacked_ = 0;
  bool retain_acked_ = false;
  bool remembers_ = false;
  std::vector<uint64_t> touched_;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_ENTRIES_H_

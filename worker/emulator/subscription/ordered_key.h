// The messages of one ordering key, in the order in which they were taken, with a cursor.
//
// Invariants:
// - The messages before the cursor are leased or acked; those from it on wait. All leased ones
//   belong to one owner, a stream or a Pull.
// - The first message is not acked, or is acked for the first time of two (`deliver_twice`).
// - A redelivery moves the cursor back. Every later message, even an acked one, is taken back and
//   comes again behind it.
// - With `deliver_twice`, nothing behind the cursor is delivered from the first ack on. When none
//   is leased any more, all before the cursor are delivered again, together.
#ifndef POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_ORDERED_KEY_H_
#define POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_ORDERED_KEY_H_

#include <algorithm>
#include <cstddef>
#include <deque>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "worker/emulator/subscription/entry.h"
#include "worker/emulator/subscription/open_streams.h"

namespace postbox::emulator {

class OrderedKey {
 public:
  // Where the key waits for delivery. It is kept by OrderedKeys.
  struct Place {
    absl::Time retry_at = absl::InfinitePast();
    KeyList* list = nullptr;
    KeyList::iterator at;
  };

  OrderedKey(std::string name, bool deliver_twice)
      : name_(std::move(name)), deliver_twice_(deliver_twice) {}
  OrderedKey(const OrderedKey&) = delete;
  OrderedKey& operator=(const OrderedKey&) = delete;

  const std::string& name() const { return name_; }
  Place& place() { return place_; }
  bool empty() const { return entries_.empty(); }
  bool leased() const { return leased_ > 0; }
  StreamId owner() const { return owner_; }  // while leased

  // The first message that waits; null if there is none.
  Entry* next() const { return cursor_ < entries_.size() ? entries_[cursor_] : nullptr; }
  // Whether next() may be delivered, as far as the messages before it are concerned.
  bool HasWork() const { return next() != nullptr && to_repeat_ == 0; }
  bool HasUnackedBefore(const Entry& entry) const;

  void Push(Entry* entry) { entries_.push_back(entry); }
  void Advance() { ++cursor_; }
  void AddLease(StreamId owner) {
    ++leased_;
    owner_ = owner;
  }
  void EndLease() {
    if (--leased_ == 0) owner_ = 0;
  }
  // `entry` is acked now.
  void NoteAck(const Entry& entry) { to_repeat_ += IsToRepeat(entry) ? 1 : 0; }

  // Moves the cursor back to `entry`. Calls `take_back` with it and each later one before the old
  // cursor, which ends its lease or its ack.
  template <class TakeBack>
  void Rewind(const Entry& entry, TakeBack take_back) {
    const size_t first = IndexOf(entry);
    for (size_t i = first; i < cursor_; ++i) {
      if (IsToRepeat(*entries_[i])) --to_repeat_;
      take_back(entries_[i]);
    }
    cursor_ = first;
  }
  // Moves the cursor to the beginning if the second delivery is due, and calls `take_back`.
  template <class TakeBack>
  void RepeatIfDue(TakeBack take_back) {
    if (to_repeat_ == 0 || leased()) return;
    for (size_t i = 0; i < cursor_; ++i) {
      take_back(entries_[i]);
      entries_[i]->repeated = true;
    }
    to_repeat_ = 0;
    cursor_ = 0;
  }
  // Removes the first message if it is done, and returns it; null if it is not.
  Entry* PopDone();
  void Remove(const Entry& entry);

 private:
  bool IsToRepeat(const Entry& entry) const {
    return deliver_twice_ && !entry.repeated && entry.state == Entry::State::kAcked;
  }
  size_t IndexOf(const Entry& entry) const;

  const std::string name_;
  const bool deliver_twice_;
  std::deque<Entry*> entries_;  // by sequence
  size_t cursor_ = 0;
  size_t leased_ = 0;
  StreamId owner_ = 0;
  size_t to_repeat_ = 0;  // acked once, to be delivered again
  Place place_;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_SUBSCRIPTION_ORDERED_KEY_H_

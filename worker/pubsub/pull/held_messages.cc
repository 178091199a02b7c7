#include "worker/pubsub/pull/held_messages.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_set.h"

namespace postbox::pubsub {

HeldMessage* HeldMessages::Find(uint64_t handle) {
  const auto it = messages_.find(handle);
  return it == messages_.end() ? nullptr : &it->second;
}

const HeldMessage* HeldMessages::Find(uint64_t handle) const {
  const auto it = messages_.find(handle);
  return it == messages_.end() ? nullptr : &it->second;
}

uint64_t HeldMessages::Add(PulledMessage pulled, HeldMessage::State state, TimePoint now) {
  const uint64_t handle = ++last_handle_;
  HeldMessage& held = messages_[handle];
  static_cast<MessageIdentity&>(held) = std::move(pulled.identity);
  held.state = state;
  held.bytes = pulled.bytes;
  held.received = now;
  if (state == HeldMessage::State::kReceipt || state == HeldMessage::State::kWaiting) {
    pulled.message.handle = handle;
    incoming_.push_back({handle, std::move(pulled.message)});
  }
  return handle;
}

bool HeldMessages::FitsBudget(int64_t bytes) const {
  return in_hand_messages_ == 0 ||
         (in_hand_messages_ < most_messages_ && in_hand_bytes_ + bytes <= most_bytes_);
}

HeldMessages::Ready HeldMessages::TakeReady(KeyGate* gate, TimePoint now) {
  int64_t unconfirmed_bytes = 0;
  // Keys with an earlier message that cannot be handed on yet.
  absl::flat_hash_set<std::string_view> waits;
  std::deque<Incoming> rest;
  Ready ready;
  ready.messages.reserve(incoming_.size());
  while (!incoming_.empty()) {
    Incoming next = std::move(incoming_.front());
    incoming_.pop_front();
    HeldMessage& held = messages_.at(next.handle);
    if (held.state == HeldMessage::State::kReceipt ||
        (!held.key.empty() && waits.contains(held.key))) {
      unconfirmed_bytes += held.bytes;
      waits.insert(held.key);
      rest.push_back(std::move(next));
    } else if (!FitsBudget(held.bytes)) {
      ready.full = true;
      rest.push_back(std::move(next));
      break;
    } else if (gate != nullptr &&
               (held.position = gate->Admit(held.key, held.message_id, now)) == 0) {
      ready.turned_away.push_back(next.handle);
    } else {
      held.state = HeldMessage::State::kInHand;
      held.handed_on = true;
      ++in_hand_messages_;
      in_hand_bytes_ += held.bytes;
      ready.messages.push_back(std::move(next.message));
    }
  }
  incoming_.insert(incoming_.begin(), std::make_move_iterator(rest.begin()),
                   std::make_move_iterator(rest.end()));
  ready.full = ready.full || unconfirmed_bytes >= std::max<int64_t>(most_bytes_, 1) ||
               static_cast<int64_t>(incoming_.size()) >= std::max<int64_t>(most_messages_, 1);
  return ready;
}

std::vector<uint64_t> HeldMessages::TakeIncoming() {
  std::vector<uint64_t> handles;
  for (const Incoming& one : std::exchange(incoming_, {})) handles.push_back(one.handle);
  return handles;
}

HeldMessage* HeldMessages::TakeFromHand(uint64_t handle) {
  HeldMessage* held = Find(handle);
  if (held == nullptr || held->state != HeldMessage::State::kInHand) return nullptr;
  --in_hand_messages_;
  in_hand_bytes_ -= held->bytes;
  return held;
}

std::vector<uint64_t> HeldMessages::InHand() const {
  std::vector<uint64_t> in_hand;
  for (const auto& [handle, held] : messages_) {
    if (held.state == HeldMessage::State::kInHand) in_hand.push_back(handle);
  }
  std::sort(in_hand.begin(), in_hand.end());
  return in_hand;
}

void HeldMessages::Remove(uint64_t handle) {
  const auto it = messages_.find(handle);
  if (it == messages_.end()) return;
  if (it->second.state == HeldMessage::State::kReceipt ||
      it->second.state == HeldMessage::State::kWaiting) {
    std::erase_if(incoming_, [handle](const Incoming& one) { return one.handle == handle; });
  }
  messages_.erase(it);
}

}  // namespace postbox::pubsub

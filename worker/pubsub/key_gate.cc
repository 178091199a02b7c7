#include "worker/pubsub/key_gate.h"

namespace postbox::pubsub {

void KeyGate::Close(const std::string& key, const std::string& message_id) {
  if (key.empty()) return;
  auto [it, is_new] = closed_.try_emplace(key);
  if (!is_new) return;
  it->second.waits_for = message_id;
  order_.push_back(key);
  while (order_.size() > max_closed_) {
    closed_.erase(order_.front());
    order_.pop_front();
  }
}

bool KeyGate::Admit(const std::string& key, const std::string& message_id) {
  auto it = closed_.find(key);
  if (it == closed_.end()) return true;
  Closed& closed = it->second;
  if (message_id != closed.waits_for && closed.turned_away.insert(message_id).second) return false;
  closed_.erase(it);
  return true;
}

void KeyGate::Clear() {
  closed_.clear();
  order_.clear();
}

}  // namespace postbox::pubsub

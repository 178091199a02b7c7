#include "worker/pubsub/pull/key_gate.h"

#include <algorithm>
#include <iterator>

namespace postbox::pubsub {

std::uint64_t KeyGate::Admit(std::string_view key, std::string_view message_id, TimePoint now) {
  if (closed_.empty()) return ++last_position_;  // as nearly always
  const auto it = closed_.find(std::string(key));
  if (it == closed_.end()) return ++last_position_;
  Closed& closed = it->second;
  closed.used = now;
  const auto [known, is_new] =
      closed.positions.try_emplace(std::string(message_id), last_position_ + 1);
  if (is_new) {
    closed.out[++last_position_] = Out{.message_id = known->first, .turned_away = true};
    return 0;
  }
  const std::uint64_t position = known->second;
  const auto own = closed.out.find(position);
  const auto end = std::next(own);
  const bool first = own == closed.out.begin();
  const bool rest_is_gone =
      own->second.turned_away &&
      std::all_of(closed.out.begin(), end, [](const auto& entry) { return entry.second.returned; });
  if (!first && !rest_is_gone) {
    own->second.turned_away = true;
    own->second.returned = false;
    return 0;
  }
  for (auto gone = closed.out.begin(); gone != end; ++gone) {
    closed.positions.erase(gone->second.message_id);
  }
  closed.out.erase(closed.out.begin(), end);
  if (closed.out.empty()) closed_.erase(it);
  return position;
}

void KeyGate::GiveBack(std::string_view key, std::string_view message_id, std::uint64_t position,
                       TimePoint now) {
  if (key.empty()) return;
  Sweep(now);
  Closed& closed = closed_[std::string(key)];
  closed.used = now;
  if (position == 0) position = ++last_position_;
  const auto [known, is_new] = closed.positions.try_emplace(std::string(message_id), position);
  if (!is_new && known->second <= position) {
    closed.out[known->second].returned = false;
  } else {
    if (!is_new) closed.out.erase(known->second);
    known->second = position;
    closed.out[position] = Out{.message_id = known->first};
  }
  ForgetArrivalsBehind(&closed, known->second);
}

void KeyGate::ForgetArrivalsBehind(Closed* closed, std::uint64_t position) {
  for (auto out = closed->out.upper_bound(position); out != closed->out.end(); ++out) {
    out->second.turned_away = false;
  }
}

void KeyGate::Returned(std::string_view key, std::string_view message_id) {
  const auto it = closed_.find(std::string(key));
  if (it == closed_.end()) return;
  Closed& closed = it->second;
  const auto known = closed.positions.find(std::string(message_id));
  if (known == closed.positions.end()) return;
  Out& out = closed.out[known->second];
  if (!out.returned) ForgetArrivalsBehind(&closed, known->second);
  out.returned = true;
}

void KeyGate::Sweep(TimePoint now) {
  if (now - swept_ < kForgetAfter / 24) return;
  swept_ = now;
  std::erase_if(closed_, [now](const auto& key) { return now - key.second.used > kForgetAfter; });
}

void KeyGate::Clear() { closed_.clear(); }

}  // namespace postbox::pubsub

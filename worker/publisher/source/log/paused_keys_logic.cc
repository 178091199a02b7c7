#include "worker/publisher/source/log/paused_keys_logic.h"

#include <algorithm>
#include <utility>

namespace postbox::publisher {

std::int64_t PausedKeys::Before(const std::string& key) const {
  const auto known = before_.find(key);
  return known == before_.end() ? kLowest : known->second;
}

void PausedKeys::BeginRound() {
  found_.clear();
  in_round_ = true;
}

void PausedKeys::Found(const std::string& key, std::int64_t first) {
  before_[key] = first - 1;
  found_.insert(key);
}

void PausedKeys::EndRound() {
  std::erase_if(before_, [&](const auto& known) {
    return !found_.contains(known.first) && !on_their_way_.contains(known.first);
  });
  found_.clear();
  in_round_ = false;
  read_ = true;
}

void PausedKeys::Add(const std::string& key, std::int64_t seq) {
  std::int64_t& before = before_.try_emplace(key, kLowest).first->second;
  if (in_round_) found_.insert(key);
  const auto out = on_their_way_.find(key);
  if (out != on_their_way_.end() && seq <= out->second.last) out->second.passed = true;
  if (seq <= before) before = seq - 1;
}

void PausedKeys::HandOut(const std::string& key, std::int64_t seq) {
  OfKey& out = on_their_way_[key];
  ++out.rows;
  out.last = std::max(out.last, seq);
  handed_out_.insert(key);
}

void PausedKeys::Settle(const std::string& key, std::int64_t seq, bool published) {
  bool passed = false;
  if (const auto out = on_their_way_.find(key); out != on_their_way_.end()) {
    passed = out->second.passed;
    if (--out->second.rows == 0) on_their_way_.erase(out);
  }
  // Nothing of the key that lies before it is left, unless that came while it was on its way. More
  // rows may have its seq than were handed out together.
  const auto known = before_.find(key);
  if (published && !passed && known != before_.end()) {
    known->second = std::max(known->second, seq - 1);
  }
}

std::vector<std::string> PausedKeys::KeysOnTheirWay() const {
  std::vector<std::string> keys;
  keys.reserve(on_their_way_.size());
  for (const auto& [key, of_key] : on_their_way_) keys.push_back(key);
  return keys;
}

std::size_t PausedKeys::on_their_way() const {
  std::size_t rows = 0;
  for (const auto& [key, of_key] : on_their_way_) rows += static_cast<std::size_t>(of_key.rows);
  return rows;
}

void PausedKeys::Gone(const std::string& key) {
  if (!on_their_way_.contains(key)) before_.erase(key);
}

void PausedKeys::RollBack() {
  auto before = std::move(on_their_way_);
  for (const std::string& key : handed_out_) before.erase(key);
  Reset();
  on_their_way_ = std::move(before);
}

void PausedKeys::Reset() {
  before_.clear();
  on_their_way_.clear();
  handed_out_.clear();
  found_.clear();
  in_round_ = false;
  read_ = false;
}

}  // namespace postbox::publisher

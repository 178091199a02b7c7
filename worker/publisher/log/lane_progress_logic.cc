#include "worker/publisher/log/lane_progress_logic.h"

#include <algorithm>
#include <utility>

namespace postbox::publisher {

LaneProgress::Handle LaneProgress::Add(const std::vector<std::int64_t>& seqs, LogPosition after) {
  const Handle first = next_;
  next_ += seqs.size();
  outstanding_ += seqs.size();
  read_ = after;
  chunks_.push_back({first, seqs, std::vector<State>(seqs.size(), State::kOutstanding), seqs.size(),
                     std::move(after)});
  Advance();
  return first;
}

LaneProgress::Place LaneProgress::Find(Handle handle, State state) {
  auto after = std::upper_bound(chunks_.begin(), chunks_.end(), handle,
                                [](Handle h, const Chunk& chunk) { return h < chunk.first; });
  if (after == chunks_.begin()) return {};
  Chunk& chunk = *std::prev(after);
  const std::size_t index = handle - chunk.first;
  if (index >= chunk.states.size() || chunk.states[index] != state) return {};
  return {&chunk, index};
}

bool LaneProgress::Settle(Handle handle) {
  const Place place = Find(handle, State::kOutstanding);
  if (place.chunk == nullptr) return false;
  place.chunk->states[place.index] = State::kSettled;
  --place.chunk->unsettled;
  --outstanding_;
  Advance();
  return true;
}

bool LaneProgress::Fail(Handle handle) {
  const Place place = Find(handle, State::kOutstanding);
  if (place.chunk == nullptr) return false;
  place.chunk->states[place.index] = State::kFailed;
  --outstanding_;
  ++failed_;
  return true;
}

bool LaneProgress::Retry(Handle handle) {
  const Place place = Find(handle, State::kFailed);
  if (place.chunk == nullptr) return false;
  place.chunk->states[place.index] = State::kOutstanding;
  ++outstanding_;
  --failed_;
  return true;
}

std::vector<LaneProgress::Failed> LaneProgress::FirstFailed(std::size_t most) const {
  std::vector<Failed> first;
  if (outstanding_ > 0) return first;
  most = std::min(most, failed_);
  first.reserve(most);
  for (const Chunk& chunk : chunks_) {
    for (std::size_t i = 0; i < chunk.states.size() && first.size() < most; ++i) {
      if (chunk.states[i] == State::kFailed) first.push_back({chunk.first + i, chunk.seqs[i]});
    }
    if (first.size() == most) break;
  }
  return first;
}

void LaneProgress::Advance() {
  while (!chunks_.empty() && chunks_.front().unsettled == 0) {
    settled_ = std::move(chunks_.front().after);
    chunks_.pop_front();
  }
}

}  // namespace postbox::publisher

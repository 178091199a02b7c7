#include "worker/publisher/source/log/lane_progress_logic.h"

#include <algorithm>
#include <utility>

namespace postbox::publisher {
namespace {

std::size_t Index(LaneProgress::Part part) { return static_cast<std::size_t>(part); }

LogPosition& PositionOf(LanePosition& position, LaneProgress::Part part) {
  return part == LaneProgress::Part::kMain ? position.main : position.ahead->position;
}

}  // namespace

LaneProgress::Handle LaneProgress::Add(const std::vector<std::int64_t>& seqs, LogPosition after,
                                       Part part) {
  const Handle first = next_;
  outstanding_[Index(part)] += seqs.size();
  PositionOf(read_, part) = after;
  AddChunk(seqs, State::kOutstanding, std::move(after), part);
  Advance(part);
  return first;
}

LaneProgress::Handle LaneProgress::first_unsettled() const {
  Handle first = next_;
  for (const std::deque<Chunk>& chunks : chunks_) {
    if (!chunks.empty()) first = std::min(first, chunks.front().first);
  }
  return first;
}

void LaneProgress::AddChunk(const std::vector<std::int64_t>& seqs, State state, LogPosition after,
                            Part part) {
  chunks_[Index(part)].push_back(
      {next_, seqs, std::vector<State>(seqs.size(), state), seqs.size(), std::move(after)});
  next_ += seqs.size();
}

LaneProgress::Place LaneProgress::Find(Handle handle, State state) {
  for (const Part part : {Part::kMain, Part::kAhead}) {
    std::deque<Chunk>& chunks = chunks_[Index(part)];
    auto after = std::upper_bound(chunks.begin(), chunks.end(), handle,
                                  [](Handle h, const Chunk& chunk) { return h < chunk.first; });
    if (after == chunks.begin()) continue;
    Chunk& chunk = *std::prev(after);
    const std::size_t index = handle - chunk.first;
    if (index >= chunk.states.size()) continue;
    if (chunk.states[index] != state) return {};
    return {&chunk, index, part};
  }
  return {};
}

bool LaneProgress::Settle(Handle handle) {
  const Place place = Find(handle, State::kOutstanding);
  if (place.chunk == nullptr) return false;
  place.chunk->states[place.index] = State::kSettled;
  --place.chunk->unsettled;
  --outstanding_[Index(place.part)];
  if (place.chunk->of_withheld) ForgetWithheld(place.chunk->seqs[place.index]);
  Advance(place.part);
  return true;
}

bool LaneProgress::Fail(Handle handle) {
  const Place place = Find(handle, State::kOutstanding);
  if (place.chunk == nullptr) return false;
  place.chunk->states[place.index] = State::kFailed;
  --outstanding_[Index(place.part)];
  ++failed_;
  return true;
}

bool LaneProgress::HandOut(Handle handle) {
  Place place = Find(handle, State::kFailed);
  std::size_t* count = &failed_;
  if (place.chunk == nullptr) {
    place = Find(handle, State::kWaiting);
    count = &waiting_;
  }
  if (place.chunk == nullptr) return false;
  place.chunk->states[place.index] = State::kOutstanding;
  ++outstanding_[Index(place.part)];
  --*count;
  return true;
}

std::optional<std::vector<LaneProgress::Event>> LaneProgress::FirstAgain(std::size_t most) const {
  if (failed_ == 0 && waiting_ == 0) return std::nullopt;
  std::vector<Event> first;
  if (failed_ > 0 && outstanding() > 0) return first;
  const State state = failed_ > 0 ? State::kFailed : State::kWaiting;
  most = std::min(most, failed_ > 0 ? failed_ : waiting_);
  first.reserve(most);
  auto main = chunks_[0].begin();
  auto ahead = chunks_[1].begin();
  while (first.size() < most) {
    const bool take_main =
        ahead == chunks_[1].end() || (main != chunks_[0].end() && main->first < ahead->first);
    const Chunk& chunk = take_main ? *main++ : *ahead++;
    for (std::size_t i = 0; i < chunk.states.size() && first.size() < most; ++i) {
      if (chunk.states[i] == state) first.push_back({chunk.first + i, chunk.seqs[i]});
    }
  }
  return first;
}

void LaneProgress::Split(std::int64_t upto) {
  const LogPosition end(upto, {}, read_.main.top());
  read_.ahead = AheadPosition{end, {}};
  settled_.ahead = AheadPosition{end, {}};
}

bool LaneProgress::Withhold(Handle handle) {
  const Place place = Find(handle, State::kOutstanding);
  if (place.chunk == nullptr || place.part != Part::kAhead) return false;
  place.chunk->withheld.push_back(place.chunk->seqs[place.index]);
  withheld_.push_back(place.chunk->seqs[place.index]);
  return Settle(handle);
}

std::vector<std::int64_t> LaneProgress::Release(const std::function<bool(std::int64_t)>& may_go) {
  const auto first = std::stable_partition(withheld_.begin(), withheld_.end(),
                                           [&](std::int64_t seq) { return !may_go(seq); });
  const std::vector<std::int64_t> seqs(first, withheld_.end());
  withheld_.erase(first, withheld_.end());
  if (seqs.empty()) return seqs;
  waiting_ += seqs.size();
  AddChunk(seqs, State::kWaiting, read_.ahead->position, Part::kAhead);
  chunks_[Index(Part::kAhead)].back().of_withheld = true;
  return seqs;
}

void LaneProgress::ForgetWithheld(std::int64_t seq) {
  const auto forget = [&](std::vector<std::int64_t>& withheld) {
    const auto found = std::find(withheld.begin(), withheld.end(), seq);
    if (found == withheld.end()) return false;
    withheld.erase(found);
    return true;
  };
  if (forget(settled_.ahead->withheld)) return;
  for (Chunk& chunk : chunks_[Index(Part::kAhead)]) {
    if (forget(chunk.withheld)) return;
  }
}

bool LaneProgress::Join() {
  std::deque<Chunk>& main = chunks_[Index(Part::kMain)];
  std::deque<Chunk>& ahead = chunks_[Index(Part::kAhead)];
  const bool any_withheld = std::any_of(ahead.begin(), ahead.end(),
                                        [](const Chunk& chunk) { return !chunk.withheld.empty(); });
  if (!main.empty() || any_withheld || !settled_.ahead->withheld.empty()) return false;
  main = std::exchange(ahead, {});
  for (Chunk& chunk : main) chunk.after = read_.main.Joined(chunk.after);
  outstanding_ = {outstanding(), 0};
  for (LanePosition* position : {&read_, &settled_}) {
    position->main = position->main.Joined(position->ahead->position);
    position->ahead.reset();
  }
  return true;
}

void LaneProgress::Advance(Part part) {
  std::deque<Chunk>& chunks = chunks_[Index(part)];
  while (!chunks.empty() && chunks.front().unsettled == 0) {
    Chunk& chunk = chunks.front();
    PositionOf(settled_, part) = std::move(chunk.after);
    if (!chunk.withheld.empty()) {
      std::vector<std::int64_t>& all = settled_.ahead->withheld;
      all.insert(all.end(), chunk.withheld.begin(), chunk.withheld.end());
    }
    chunks.pop_front();
  }
}

}  // namespace postbox::publisher

#include "worker/publisher/source/log/backlog_keys_logic.h"

#include <algorithm>

namespace postbox::publisher {

namespace {

constexpr std::size_t kRangesOfOneSize = 16;
constexpr std::size_t kMostRanges = 96;

}  // namespace

std::size_t BacklogKeys::Capacity(std::size_t range) const {
  return keys_of_range_ << (range / kRangesOfOneSize);
}

std::vector<BacklogKeys::Range>::iterator BacklogKeys::RangeOf(std::int64_t seq) {
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), seq,
                                      [](std::int64_t s, const Range& r) { return s < r.begin; });
  return std::prev(after);
}

void BacklogKeys::Add(std::int64_t seq, std::string_view key) {
  if (ranges_.empty()) ranges_.push_back({std::numeric_limits<std::int64_t>::min(), seq});
  const Range& newest = ranges_.back();
  if (seq > newest.last && newest.keys >= Capacity(ranges_.size() - 1) &&
      ranges_.size() < kMostRanges) {
    ranges_.push_back({seq, seq});
  }
  const auto range = RangeOf(seq);
  if (!range->filter) {
    const auto number = static_cast<std::size_t>(range - ranges_.begin());
    range->filter.emplace(Capacity(number));
  }
  range->filter->Add(key);
  range->last = std::max(range->last, seq);
  ++range->keys;
}

void BacklogKeys::NoteSeen(std::int64_t first, std::int64_t last, const XidSnapshot& snapshot) {
  for (auto range = RangeOf(first); range != ranges_.end() && range->begin <= last; ++range) {
    range->seen = snapshot;
  }
}

void BacklogKeys::Withhold(std::int64_t seq, const std::string& key) {
  withheld_.emplace(seq, key);
  withheld_keys_.insert(key);
}

void BacklogKeys::Release(const std::vector<std::int64_t>& seqs) {
  for (const std::int64_t seq : seqs) {
    const auto [begin, end] = withheld_.equal_range(seq);
    for (auto event = begin; event != end; ++event) {
      withheld_keys_.erase(withheld_keys_.find(event->second));
    }
    withheld_.erase(begin, end);
  }
}

bool BacklogKeys::MayHave(std::string_view key) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const Range& range) {
    return range.filter && range.filter->MayHave(key);
  });
}

bool BacklogKeys::MayGo(std::int64_t seq) const {
  const auto [begin, end] = withheld_.equal_range(seq);
  return std::none_of(begin, end, [&](const auto& event) { return MayHave(event.second); });
}

bool BacklogKeys::Forget(const LogPosition& position) {
  if (position.zones().empty()) return false;
  const XidSnapshot& seen = position.zones().front().seen;
  bool any = false;
  for (Range& range : ranges_) {
    if (!range.filter || range.last > position.lowest() || !seen.SeesAllOf(range.seen)) continue;
    range.filter.reset();
    range.keys = 0;
    any = true;
  }
  return any;
}

}  // namespace postbox::publisher

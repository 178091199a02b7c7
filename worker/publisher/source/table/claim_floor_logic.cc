// See claim_floor_logic.h.
#include "worker/publisher/source/table/claim_floor_logic.h"

#include <limits>

namespace postbox::publisher {

namespace {

constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();

}  // namespace

std::int64_t ClaimFloor::Skip(std::int64_t at, const SeqSet& in_hand) const {
  while (at < kEnd) {
    const std::int64_t end = std::max(passed_.EndOfRun(at + 1), in_hand.EndOfRun(at + 1));
    if (end == at) break;
    at = end;
  }
  return at;
}

ClaimFloor::Ranges ClaimFloor::Between(std::int64_t at, std::int64_t upto,
                                       const SeqSet& in_hand) const {
  Ranges ranges;
  at = Skip(at, in_hand);
  std::int64_t looked_at = at;  // runs up to here are too short
  while (at < upto) {
    const std::int64_t run =
        looked_at < upto && ranges.after.size() + 1 < kMostRanges
            ? std::min(passed_.Next(looked_at + 1), in_hand.Next(looked_at + 1))
            : kEnd;
    const bool none = run == kEnd || run > upto;
    looked_at = none ? upto : Skip(run - 1, in_hand);
    if (!none && looked_at - run + 1 < kShortRun) continue;
    ranges.after.push_back(at);
    ranges.upto.push_back(none ? upto : run - 1);
    at = looked_at;
  }
  return ranges;
}

}  // namespace postbox::publisher

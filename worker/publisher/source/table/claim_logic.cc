// See claim_logic.h.
#include "worker/publisher/source/table/claim_logic.h"

namespace postbox::publisher {

bool ClaimSelection::Fits(const Candidate& candidate) const {
  if (events_ == 0) return candidate.bytes <= first_bytes_;
  return events_ < max_events_ && bytes_ + candidate.bytes <= max_bytes_;
}

void ClaimSelection::Block(const std::string& name, Key* key) {
  if (key->blocked) return;
  key->blocked = true;
  if (blocked_.size() < kMaxBlockedKeys) blocked_.push_back(name);
}

std::vector<ClaimVerdict> ClaimSelection::Judge(const std::vector<Candidate>& chunk, bool walk) {
  std::vector<ClaimVerdict> verdicts;
  verdicts.reserve(chunk.size());
  for (const Candidate& candidate : chunk) {
    Key& key = keys_[candidate.key];
    const bool first = candidate.predecessor == 0;
    const bool follows = !first && candidate.predecessor == key.claimed_last;
    const bool behind_parked =
        !first && (candidate.predecessor_parked || candidate.predecessor == key.parked_last);
    ClaimVerdict verdict = ClaimVerdict::kLeave;
    if (!key.lost && (first || follows)) {
      if (!full_ && Fits(candidate)) {
        verdict = ClaimVerdict::kClaim;
        key.claimed_last = candidate.seq;
        ++events_;
        bytes_ += candidate.bytes;
        full_ = events_ >= max_events_ || bytes_ >= max_bytes_;
      } else {
        // Smaller events of other keys might still fit, but then a large one could wait for ever.
        full_ = true;
        if (events_ == 0 && needed_ == 0) needed_ = candidate.bytes;
      }
    } else if (!key.lost && behind_parked) {
      verdict = ClaimVerdict::kPark;
      key.parked_last = candidate.seq;
    } else if (walk && !full_) {
      Block(candidate.key, &key);
    }
    verdicts.push_back(verdict);
  }
  return verdicts;
}

void ClaimSelection::Locked(const std::vector<Candidate>& chunk,
                            const std::unordered_set<std::int64_t>& locked,
                            std::vector<ClaimVerdict>* verdicts) {
  for (std::size_t i = 0; i < chunk.size(); ++i) {
    ClaimVerdict& verdict = (*verdicts)[i];
    if (verdict == ClaimVerdict::kLeave) continue;
    Key& key = keys_[chunk[i].key];
    if (!key.lost && locked.contains(chunk[i].seq)) continue;
    if (verdict == ClaimVerdict::kClaim) {
      --events_;
      bytes_ -= chunk[i].bytes;
      full_ = false;
    }
    verdict = ClaimVerdict::kLeave;
    key.lost = true;
    Block(chunk[i].key, &key);
  }
}

}  // namespace postbox::publisher

// Which rows of a table outbox a claim may take, without Postgres: the rule that keeps the order of
// a key.
//
// The caller walks over candidates (rows that wait) in the order of seq and knows of each the
// nearest earlier row of its key that is not published (its predecessor), whatever that row's
// state. A row may be claimed if
//   - it has no predecessor, or
//   - its predecessor is the row of its key that this claim took last.
// So what a claim takes of a key begins with the key's first unpublished row and has no gap.
//
// A row whose predecessor is parked (waits for its next retry, or for redrive or discard) is parked
// behind it: it leaves the claim index and costs nothing until the key goes on. Every other row
// that may not be claimed is left where it is: another worker has the key.
//
// Why the check may be made before the row is locked: being unpublished ends once and does not
// begin again, but for postbox.republish, of which claim_walk.h speaks; and emitters of one key are
// serialised, so that everything before a visible row is
// visible too. A predecessor can only disappear between the check and the lock, which refuses a
// row that could have been claimed; none can appear. What the lock must decide is whether the row
// itself, and those before it in this claim, are still free: a row that could not be locked takes
// itself and all later rows of its key out of the claim (Locked()). tests/models/table_claim.pml
// checks this.
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_TABLE_CLAIM_LOGIC_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_TABLE_CLAIM_LOGIC_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace postbox::publisher {

struct Candidate {
  std::int64_t seq = 0;
  std::string key;
  std::size_t bytes = 0;            // when it is read, as far as that is known before
  std::int64_t predecessor = 0;     // its seq; 0: none
  bool predecessor_parked = false;  // waits with next_retry_at set, and is not leased
  bool begins_run = false;          // of republished events, see claim_walk.h
};

enum class ClaimVerdict {
  kClaim,
  kPark,  // behind its parked predecessor
  kLeave,
};

// The decisions of one claim, over any number of chunks of candidates.
class ClaimSelection {
 public:
  // The first row may have `first_bytes`, if that is more.
  ClaimSelection(std::size_t max_events, std::size_t max_bytes,
                 std::size_t first_bytes = std::numeric_limits<std::size_t>::max())
      : max_events_(max_events),
        max_bytes_(max_bytes),
        first_bytes_(std::max(max_bytes, first_bytes)) {}

  // The limits from now on, for what was taken before, too.
  void Extend(std::size_t max_events, std::size_t max_bytes) {
    max_events_ = max_events;
    max_bytes_ = max_bytes;
    full_ = events_ >= max_events_ || bytes_ >= max_bytes_;
  }

  // Decides over the candidates of a chunk, in the order of seq. `walk`: the chunk is the next part
  // of a walk over all rows that wait, so a key that cannot go on in it is over for this claim.
  // Otherwise the chunk is a selection (the retries that are due), and says nothing about other
  // rows of its keys.
  std::vector<ClaimVerdict> Judge(const std::vector<Candidate>& chunk, bool walk);

  // After the rows with kClaim and kPark were locked: takes back the verdicts of those that could
  // not be (`locked` holds the seq of those that could) and of what follows them in their key.
  void Locked(const std::vector<Candidate>& chunk, const std::unordered_set<std::int64_t>& locked,
              std::vector<ClaimVerdict>* verdicts);

  // The budget is used up: walking on finds nothing.
  bool full() const { return full_; }
  std::size_t claimed() const { return events_; }
  // How large the row is that was too large to be the first, if nothing was claimed.
  std::size_t needed() const { return events_ == 0 ? needed_ : 0; }

  // Keys that this claim cannot take any further; the walk over a deep backlog leaves them out. At
  // most kMaxBlockedKeys: a longer list costs more than it saves.
  static constexpr std::size_t kMaxBlockedKeys = 100;
  const std::vector<std::string>& blocked_keys() const { return blocked_; }

 private:
  struct Key {
    std::int64_t claimed_last = 0;
    std::int64_t parked_last = 0;
    bool lost = false;     // a row of it could not be locked
    bool blocked = false;  // it stands in blocked_
  };

  bool Fits(const Candidate& candidate) const;
  void Block(const std::string& name, Key* key);

  std::size_t max_events_;
  std::size_t max_bytes_;
  const std::size_t first_bytes_;
  std::size_t needed_ = 0;
  std::size_t events_ = 0;
  std::size_t bytes_ = 0;
  bool full_ = false;
  std::unordered_map<std::string, Key> keys_;
  std::vector<std::string> blocked_;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_TABLE_CLAIM_LOGIC_H_

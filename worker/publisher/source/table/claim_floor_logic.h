// Where a walk over the rows that wait begins and what it leaves out, without Postgres.
//
// The index of the claim keeps entries of rows that were published, until a VACUUM. To pass all of
// them in each claim would cost more with every event. So a walk begins at a floor, up to which
// nothing waited the last time. A row can appear below it: its transaction took the seq long before
// it committed, or the row was given back. A seq that was not seen kRecent ago is never below.
// For the others a walk begins at the start every kLookInterval, and at once if a claim has found
// nothing, but not more often than every kLookAgain, and so that it takes a tenth of the time at
// most.
//
// A lease changes no index (table_relations.h), so the index keeps entries of rows that are in
// flight, too, and a worker that is far from Pub/Sub has many of them. Above the floor a walk
// leaves out the seqs that it knows of:
//   - the rows that this worker has in hand. No other row can have their seqs, so this holds for
//     as long as it has them.
//   - the rows that it has passed since it began at the start: its own claims that are published
//     by now, and rows that were under the lease of another one. That one may give them back: then
//     they are found when a walk begins at the start again.
// These are runs of consecutive numbers. A seq that was not seen is in no run, so a row whose
// transaction commits late is found at once.
//
// The order of a key depends on none of this: what a claim does not see blocks its key
// (claim_logic.h).
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_TABLE_CLAIM_FLOOR_LOGIC_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_TABLE_CLAIM_FLOOR_LOGIC_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "worker/publisher/source/table/seq_set_logic.h"

namespace postbox::publisher {

class ClaimFloor {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  static constexpr std::chrono::milliseconds kRecent{2000};
  static constexpr std::chrono::milliseconds kLookInterval{500};
  static constexpr std::chrono::milliseconds kLookAgain{50};
  static constexpr int kPauseFactor = 10;
  // To find where a run ends costs as much as to pass so many rows.
  static constexpr std::int64_t kShortRun = 4;
  static constexpr std::size_t kMostRanges = 1000;
  static constexpr std::size_t kMostRuns = 5000;

  // The walk begins after this seq.
  std::int64_t seq() const { return floor_; }

  // The next walk begins at the start if none has for so long. Returns whether it does.
  bool Look(TimePoint now, std::chrono::milliseconds interval) {
    if (looked_at_ && now < *looked_at_ + std::max(interval, pause_)) return false;
    looked_at_ = now;
    Clear();
    return true;
  }
  // So long it took to come from the start to the first row.
  void Took(std::chrono::milliseconds time) { pause_ = time * kPauseFactor; }
  // Rows below may wait again.
  void Clear() {
    floor_ = 0;
    passed_.Clear();
  }

  // A walk leaves these out from now on.
  void Passed(SeqSet::Run run) {
    if (passed_.runs() >= kMostRuns) passed_.Clear();
    passed_.Add(run);
  }
  // A walk that has come to this seq goes on after the one that this returns.
  std::int64_t Skip(std::int64_t at, const SeqSet& in_hand) const;
  // What there is to walk over after `at` and up to `upto`: each range begins after a seq.
  struct Ranges {
    std::vector<std::int64_t> after, upto;
  };
  Ranges Between(std::int64_t at, std::int64_t upto, const SeqSet& in_hand) const;

  // A walk over all keys that began at seq() has found this row first, or none.
  void Found(TimePoint now, std::optional<std::int64_t> first,
             std::chrono::milliseconds recent = kRecent) {
    if (!sampled_at_ || now >= *sampled_at_ + recent) {
      not_recent_ = sample_;
      sample_ = highest_;
      sampled_at_ = now;
    }
    floor_ = std::max(floor_, std::min(first ? *first - 1 : highest_, not_recent_));
    passed_.RemoveUpTo(floor_);
  }
  // A walk has come to this row.
  void Seen(std::int64_t seq) { highest_ = std::max(highest_, seq); }

 private:
  std::int64_t floor_ = 0;
  SeqSet passed_;
  std::chrono::milliseconds pause_{0};
  std::int64_t highest_ = 0;
  std::int64_t not_recent_ = 0;  // what highest_ was kRecent ago, or longer
  std::int64_t sample_ = 0;      // what it was at sampled_at_
  std::optional<TimePoint> sampled_at_;
  std::optional<TimePoint> looked_at_;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_TABLE_CLAIM_FLOOR_LOGIC_H_

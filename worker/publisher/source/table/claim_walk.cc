#include "worker/publisher/source/table/claim_walk.h"

#include "extension/shared/time_scale.h"

namespace postbox::publisher {

namespace {

// How many chunks one claim walks over: a step stays short, and the next one goes on where this
// one stopped.
constexpr int kMaxChunks = 8;
// So many of them begin with the oldest row.
constexpr int kFirstChunks = 4;
// How many seqs a chunk goes over where rows of keys that cannot go on are left out.
constexpr int64 kSeqsOfChunk = 10'000;
// So many leases of others are remembered until they are looked at.
constexpr std::size_t kMostLeases = 5000;

// So many of the retries that a claim may take are taken with what is behind them.
std::size_t PartOf(std::size_t most) { return std::max<std::size_t>(most / 8, 1); }

}  // namespace

std::vector<ChosenRow> ClaimWalk::Choose(const ClaimLimits& limits, ClaimResult* result) {
  const std::size_t retries = share_.Of(limits.events);
  Choice choice{
      ClaimSelection(retries, share_.Of(limits.bytes), std::max(limits.bytes, limits.first)), {}};
  if (free_behind_) {
    free_behind_ = table_.queue().FreeBehind(limits.events);
    floor_.Clear();
    choice.progress = free_behind_;
  }
  TakeRetries(retries, &choice);
  choice.selection.Extend(limits.events, limits.bytes);
  const std::size_t retried = choice.rows.size();

  floor_.Look(Clock::now(), Scaled(ClaimFloor::kLookInterval));
  const bool goes_on = cursor_ != 0;
  if (!goes_on) settled_ = false;
  const bool walked_to_end = Walk(limits.events, &choice);
  // Results that came meanwhile may have made room for rows that it had passed.
  if (walked_to_end && goes_on && settled_) choice.progress = true;
  // Only for what may be below the floor, so it does not go on if it does not come to the end.
  if (walked_to_end && choice.rows.empty() && floor_.seq() > 0 &&
      floor_.Look(Clock::now(), Scaled(ClaimFloor::kLookAgain))) {
    Walk(limits.events, &choice);
    cursor_ = 0;
  }
  share_.Found(choice.rows.size() - retried);
  result->needed = choice.selection.needed();
  // Not at the end, nothing found yet: go on at once.
  const bool goes_on_now = !walked_to_end && choice.rows.empty() && result->needed == 0;
  result->more = choice.progress || goes_on_now;
  return std::move(choice.rows);
}

void ClaimWalk::Leased(const std::vector<int64>& seqs) {
  for (const SeqSet::Run& run : SeqSet::RunsOf(seqs)) floor_.Passed(run);
}

void ClaimWalk::Reset() {
  floor_.Clear();
  cursor_ = 0;
}

// The oldest first, where results have made room, then on from where the last walk stopped.
bool ClaimWalk::Walk(std::size_t most, Choice* choice) {
  ClaimSelection& selection = choice->selection;
  const std::size_t chunk_size = std::max<std::size_t>(most, 10);
  int64 at = floor_.seq();
  for (int chunks = 0; chunks < kMaxChunks && !selection.full(); ++chunks) {
    if (chunks == kFirstChunks) at = std::max(at, cursor_);
    const bool from_start = at == 0;
    at = floor_.Skip(at, in_hand_.seqs());
    const bool bounded = !selection.blocked_keys().empty();
    const int64 upto = bounded ? at + std::min(kSeqsOfChunk, PG_INT64_MAX - at) : PG_INT64_MAX;
    const EventTable::Read read = table_.Waiting(floor_.Between(at, upto, in_hand_.seqs()),
                                                 chunk_size, selection.blocked_keys());
    if (from_start) floor_.Took(read.took);
    const std::optional<int64> first = Passed(read.candidates, read.cut, &at);
    if (chunks == 0 && !bounded) floor_.Found(Clock::now(), first, Scaled(ClaimFloor::kRecent));
    Take(read.candidates, Kind::kWalk, choice);
    if (!read.cut) {
      const std::optional<int64> next =
          bounded ? table_.NextWaiting(floor_.Between(upto, PG_INT64_MAX, in_hand_.seqs()))
                  : std::nullopt;
      if (!next) {
        cursor_ = 0;
        return true;
      }
      at = *next - 1;
    }
    // Enough for a good batch: a claim that is late is worse than one that is not full.
    if (selection.claimed() * 2 >= most) return false;
  }
  if (!selection.full()) cursor_ = at;
  return false;
}

std::optional<int64> ClaimWalk::Passed(const Candidates& candidates, bool cut, int64* at) {
  Leased(candidates.leased);
  for (const ItemPointerData& lease : candidates.leases) {
    if (leases_seen_.size() < kMostLeases) leases_seen_.push_back(lease);
  }
  std::optional<int64> first;
  if (!candidates.rows.empty()) first = candidates.rows.front().seq;
  if (!candidates.rows.empty()) *at = std::max(*at, candidates.rows.back().seq);
  if (!candidates.leased.empty()) *at = std::max(*at, candidates.leased.back());
  if (first || !candidates.leased.empty()) floor_.Seen(*at);
  return first || !cut ? first : std::optional(*at < PG_INT64_MAX ? *at + 1 : *at);
}

void ClaimWalk::TakeRetries(std::size_t most, Choice* choice) {
  // What is behind a row costs less with it than by itself.
  const EventTable::DueRows due = table_.Due(most, blocks_ ? PartOf(most) : most);
  if (due.first.tids.empty()) return;
  Take(due.first, Kind::kRetries, choice);
  if (!blocks_ || choice->selection.full()) return;
  TakeFollowers(most, choice);
  if (!due.rest.tids.empty() && !choice->selection.full()) Take(due.rest, Kind::kRetries, choice);
}

void ClaimWalk::TakeFollowers(std::size_t most, Choice* choice) {
  std::unordered_map<std::string, int64> last;
  for (const ChosenRow& row : choice->rows) last[row.key] = std::max(last[row.key], row.seq);
  if (last.empty()) return;
  const std::size_t each = std::max<std::size_t>(most / last.size(), 1);
  Take(table_.Followers(last, most, each), Kind::kFollowers, choice);
}

void ClaimWalk::Take(const Candidates& candidates, Kind kind, Choice* choice) {
  std::vector<ClaimVerdict> verdicts =
      choice->selection.Judge(candidates.rows, kind == Kind::kWalk);
  std::vector<ItemPointerData> wanted;
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    if (verdicts[i] != ClaimVerdict::kLeave) wanted.push_back(candidates.tids[i]);
  }
  if (wanted.empty()) return;

  const std::unordered_map<int64, ItemPointerData> tid_of =
      kind == Kind::kFollowers ? table_.LockBehind(wanted) : table_.Lock(wanted);
  std::unordered_set<int64> locked;
  for (const auto& [seq, tid] : tid_of) locked.insert(seq);
  if (kind == Kind::kRetries && blocks_) BeginRuns(candidates, verdicts, &locked);
  choice->selection.Locked(candidates.rows, locked, &verdicts);

  std::vector<ItemPointerData> behind;
  std::vector<const Candidate*> behind_rows;
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    const Candidate& candidate = candidates.rows[i];
    if (verdicts[i] == ClaimVerdict::kClaim) {
      const auto too_large = candidates.too_large.find(candidate.seq);
      choice->rows.push_back({tid_of.at(candidate.seq), candidate.seq, candidate.key,
                              candidate.bytes,
                              too_large == candidates.too_large.end() ? 0 : too_large->second});
      choice->progress = true;
    } else if (verdicts[i] == ClaimVerdict::kPark) {
      behind.push_back(tid_of.at(candidate.seq));
      behind_rows.push_back(&candidate);
    }
  }
  if (PutBehind(behind_rows, behind)) choice->progress = true;
}

void ClaimWalk::BeginRuns(const Candidates& candidates, const std::vector<ClaimVerdict>& verdicts,
                          std::unordered_set<int64>* locked) {
  std::unordered_map<std::string, int64> runs;
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    const Candidate& row = candidates.rows[i];
    if (verdicts[i] == ClaimVerdict::kClaim && row.begins_run && locked->contains(row.seq)) {
      runs.emplace(row.key, row.seq);
    }
  }
  if (runs.empty()) return;
  std::unordered_set<std::string> must_wait;
  std::vector<EventTable::OpenRow> free;
  std::vector<ItemPointerData> tids;
  for (const EventTable::OpenRow& row : table_.FirstOpen(runs)) {
    if (row.leased) {
      must_wait.insert(row.key);
    } else {
      free.push_back(row);
      tids.push_back(row.tid);
    }
  }
  if (!tids.empty()) {
    const std::unordered_map<int64, ItemPointerData> held = table_.Lock(tids);
    std::vector<ItemPointerData> behind;
    for (const EventTable::OpenRow& row : free) {
      const auto found = held.find(row.seq);
      if (found == held.end()) {
        must_wait.insert(row.key);
      } else {
        behind.push_back(found->second);
      }
    }
    table_.queue().PutBehind(behind);
  }
  for (const auto& [key, seq] : runs) {
    if (must_wait.contains(key)) locked->erase(seq);
  }
}

bool ClaimWalk::PutBehind(const std::vector<const Candidate*>& candidates,
                          const std::vector<ItemPointerData>& rows) {
  if (rows.empty()) return false;
  std::unordered_set<std::string> distinct;
  for (const Candidate* candidate : candidates) distinct.insert(candidate->key);
  const auto held = table_.queue().HoldHeadsOf({distinct.begin(), distinct.end()});
  std::vector<ItemPointerData> behind;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    // What was in front of it may be gone by now.
    const auto head = held.find(candidates[i]->key);
    if (head != held.end() && head->second < candidates[i]->seq) behind.push_back(rows[i]);
  }
  table_.queue().PutBehind(behind);
  return !behind.empty();
}

}  // namespace postbox::publisher
